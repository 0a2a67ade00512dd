'use strict'

// Optional improvements: every page works without this script.

// Elements with data-live are kept up to date: the page is fetched again, and the parts that changed are replaced.
const live = () => [...document.querySelectorAll('[data-live]')]
const statusLine = document.querySelector('[data-live-at]')
let paused = false, failures = 0

const seconds = () => Math.min(...live().map((part) => Number(part.dataset.live)))

const showStatus = (text) => {
  if (!statusLine) return
  statusLine.firstChild.textContent = text
  statusLine.classList.toggle('off', paused || failures > 0)
}

// The HTML as received is compared, not the element, because buttons are added to it. The focus is kept.
const received = new Map(live().map((part) => [part.id, part.outerHTML]))
const replace = (old, fresh) => {
  if (received.get(old.id) === fresh.outerHTML) return
  received.set(old.id, fresh.outerHTML)
  const focused = old.contains(document.activeElement) ? document.activeElement : null
  const key = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute('href') && `[href="${CSS.escape(focused.getAttribute('href'))}"]`)
  old.replaceWith(document.adoptNode(fresh))
  decorate(fresh)
  if (key) fresh.querySelector(key)?.focus({ preventScroll: true })
}

const refresh = async () => {
  try {
    const response = await fetch(location.href, { headers: { accept: 'text/html' }, cache: 'no-store' })
    if (response.redirected) return location.reload()
    if (!response.ok) throw new Error(response.status)
    const page = new DOMParser().parseFromString(await response.text(), 'text/html')
    for (const part of live()) {
      const fresh = page.getElementById(part.id)
      if (fresh) replace(part, fresh)
    }
    failures = 0
    showStatus(`live, updated ${new Date().toISOString().slice(11, 19)}`)
  } catch {
    failures += 1
    showStatus('connection lost, retrying')
  }
}

const scheduleRefresh = () => {
  if (!live().length) {
    if (statusLine) statusLine.replaceChildren()
    return
  }
  setTimeout(async () => {
    if (!paused && !document.hidden) await refresh()
    scheduleRefresh()
  }, 1000 * seconds() * Math.min(2 ** failures, 16))
}

if (live().length) {
  if (statusLine) {
    const button = document.createElement('button')
    button.type = 'button'
    button.className = 'small'
    button.textContent = 'Pause'
    button.addEventListener('click', () => {
      paused = !paused
      button.textContent = paused ? 'Resume' : 'Pause'
      showStatus(paused ? 'paused' : 'live')
    })
    statusLine.append('live', button)
  }
  scheduleRefresh()
}

// Texts get a button that copies them.
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

// Fields can be filled from a file, which is read in the browser and not uploaded.
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

// Forms with data-once are submitted once.
for (const form of document.querySelectorAll('[data-once]')) {
  form.addEventListener('submit', () => {
    for (const button of form.querySelectorAll('button')) button.disabled = true
  })
  addEventListener('pageshow', () => {
    for (const button of form.querySelectorAll('button')) button.disabled = false
  })
}
