"""Somebody who uses the pages without a browser: follows forms as they are drawn, and knows nothing else."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

ORIGIN = "http://localhost"
PLACES = ("/", "/requests", "/erase", "/matters", "/verify", "/receipt")
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}


@dataclass
class Form:
    """A form: where it goes, and the fields that it sends if nobody types anything."""

    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    """What is on a page: forms, links, texts, and anything that a strict policy forbids."""

    def __init__(self, text):
        super().__init__()
        self.forms, self.links, self.inline, self.values, self.ids = [], [], [], [], []
        self.svg, self.open, self._texts, self._area, self._select = [], [], [], None, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.values += [value for value in found.values() if value]
        self.ids += [found["id"]] if "id" in found else []
        self.inline += [name for name in found if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in found):
            self.inline.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in ("rect", "path", "line", "progress"):
            self.svg.append((tag, found))
        elif tag == "form":
            self.forms.append(Form(found.get("method", "get"), found["action"]))
        elif tag == "input" and "name" in found:
            self.forms[-1].fields[found["name"]] = found.get("value") or ""
        elif tag == "textarea":
            self._area = found["name"]
            self.forms[-1].fields[self._area] = ""
        elif tag == "select":
            self._select = found["name"]
        elif tag == "option" and (self._select not in self.forms[-1].fields or "selected" in found):
            self.forms[-1].fields[self._select] = found.get("value") or ""

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag == "textarea":
            self._area = None

    def handle_data(self, data):
        self._texts.append(data)
        if self._area is not None:
            self.forms[-1].fields[self._area] += data

    @property
    def text(self):
        """What somebody reads."""
        return re.sub(r"\s+", " ", " ".join(self._texts))

    def form(self, action):
        """The form that goes there."""
        [found] = [form for form in self.forms if form.action == action]
        return found


class Person:
    """Somebody with a client that keeps cookies."""

    def __init__(self, client, origin=ORIGIN):
        self.client, self.origin = client, origin

    def get(self, address, status=200):
        """A page, which must be well formed and keep to its policy."""
        answer = self.client.get(address, follow_redirects=False)
        assert answer.status_code == status, (address, answer.status_code, answer.text)
        return checked(answer)

    def send(self, form, **typed):
        """Send a form as it is drawn, with what somebody types."""
        headers = {"origin": self.origin}
        return self.client.post(form.action, data={**form.fields, **typed}, headers=headers, follow_redirects=False)

    def post(self, at, action, status=303, **typed):
        """Go to a page, fill in one of its forms, and send it."""
        answer = self.send(self.get(at).form(action), **typed)
        assert answer.status_code == status, (action, answer.status_code, answer.text)
        return answer

    def log_in(self, text):
        return self.post("/login", "/login", token=text)


def checked(answer):
    """A page of an answer."""
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert page.inline == []
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    return page
