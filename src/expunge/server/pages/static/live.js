'use strict'

// What a page is better with; without it everything works all the same.

// Parts of the page that are kept up to date: the page is asked for again, and what differs is put in place.
const live = () => [...document.querySelectorAll('[data-live]')]
const at = document.querySelector('[data-live-at]')
let paused = false, failures = 0

const seconds = () => Math.min(...live().map((part) => Number(part.dataset.live)))

const said = (text) => {
  if (!at) return
  at.firstChild.textContent = text
  at.classList.toggle('off', paused || failures > 0)
}

// What was drawn last is compared, because buttons are added to it; somebody's focus survives.
const drawn = new Map(live().map((part) => [part.id, part.outerHTML]))
const put = (old, fresh) => {
  if (drawn.get(old.id) === fresh.outerHTML) return
  drawn.set(old.id, fresh.outerHTML)
  const focused = old.contains(document.activeElement) ? document.activeElement : null
  const key = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute('href') && `[href="${CSS.escape(focused.getAttribute('href'))}"]`)
  old.replaceWith(document.adoptNode(fresh))
  decorate(fresh)
  if (key) fresh.querySelector(key)?.focus({ preventScroll: true })
}

const renew = async () => {
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' }, cache: 'no-store' })
    if (answer.redirected) return location.reload()
    if (!answer.ok) throw new Error(answer.status)
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html')
    for (const part of live()) {
      const fresh = page.getElementById(part.id)
      if (fresh) put(part, fresh)
    }
    failures = 0
    said(`live, as of ${new Date().toISOString().slice(11, 19)}`)
  } catch {
    failures += 1
    said('no answer; trying again')
  }
}

const later = () => {
  if (!live().length) {
    if (at) at.replaceChildren()
    return
  }
  setTimeout(async () => {
    if (!paused && !document.hidden) await renew()
    later()
  }, 1000 * seconds() * Math.min(2 ** failures, 16))
}

if (live().length) {
  if (at) {
    const button = document.createElement('button')
    button.type = 'button'
    button.className = 'small'
    button.textContent = 'Pause'
    button.addEventListener('click', () => {
      paused = !paused
      button.textContent = paused ? 'Resume' : 'Pause'
      said(paused ? 'paused' : 'live')
    })
    at.append('live', button)
  }
  later()
}

// A text can be copied, and a file can be read into a field: it goes nowhere else.
const decorate = (root) => {
  for (const text of root.querySelectorAll('[data-copy]')) {
    const button = document.createElement('button')
    button.type = 'button'
    button.className = 'small'
    button.textContent = 'Copy'
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(text.textContent)
      button.textContent = 'Copied'
    })
    let row = text.nextElementSibling
    if (!row?.matches('.copy')) text.after(row = document.createElement('p'))
    row.prepend(button, ' ')
  }
}
decorate(document)

for (const field of document.querySelectorAll('[data-from-file]')) {
  const file = document.createElement('input')
  file.type = 'file'
  file.setAttribute('aria-label', `${field.labels[0].textContent}, from a file`)
  file.addEventListener('change', async () => {
    if (file.files.length) field.value = await file.files[0].text()
    file.value = ''
  })
  field.after(file)
}

// A form that does something for good is sent once.
for (const form of document.querySelectorAll('[data-once]')) {
  form.addEventListener('submit', () => {
    for (const button of form.querySelectorAll('button')) button.disabled = true
  })
  addEventListener('pageshow', () => {
    for (const button of form.querySelectorAll('button')) button.disabled = false
  })
}
