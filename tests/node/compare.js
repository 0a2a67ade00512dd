// Certificates and receipts that Python made and judged, judged again: by jose, and by the script of the page.
import { readFileSync } from 'node:fs'
import vm from 'node:vm'
import { compactVerify, importSPKI } from 'jose'
import { check as checkWithJose } from './receipt.js'

const [casesFile, pageFile] = process.argv.slice(2)
const { certificates, receipts } = JSON.parse(readFileSync(casesFile, 'utf8'))

// The page's script as a browser runs it, but for the document, which is not there.
const [, script] = readFileSync(pageFile, 'utf8').match(/<script>([^]*?)<\/script>/)
const world = { crypto, TextEncoder, TextDecoder, Uint8Array, atob, btoa }
vm.createContext(world)
vm.runInContext(`${script}\nglobalThis.page = { check, proven, Refused }`, world)

async function judged(work) {
  try { return { payload: await work() } } catch (error) { return { refusal: error } }
}

const sorted = (value) => JSON.stringify(value, (_, one) =>
  one && typeof one === 'object' && !Array.isArray(one) ? Object.fromEntries(Object.entries(one).sort()) : one)
// jose reads one key, and nothing but it.
const oneKey = (pem) => pem.split('BEGIN').length === 2 && pem.startsWith('-----BEGIN') && pem.endsWith('-----\n')
// Refusals that are not about form, which the short check with jose must share.
const SUBSTANCE = /^the signature was not made with this key|^this is not a receipt for this id|^the path in this receipt/
const counts = { certificates: 0, accepted: 0, refused: 0, sameWords: 0 }
const wrong = []

for (const { name, text, key, payload } of certificates) {
  const found = await judged(async () => {
    const { payload: bytes } = await compactVerify(text, await importSPKI(key, 'EdDSA'), { algorithms: ['EdDSA'] })
    return JSON.parse(new TextDecoder().decode(bytes))
  })
  counts.certificates += 1
  if (sorted(found.payload ?? null) !== sorted(payload)) wrong.push(`jose, certificate ${name}`)
}

for (const { name, file, id, keys, thumbprint, payload, refusal } of receipts) {
  const bytes = new Uint8Array(Buffer.from(file, 'base64'))
  const page = await judged(async () => (await world.page.check(bytes, id, keys, thumbprint)).payload)
  if (page.refusal && !(page.refusal instanceof world.page.Refused)) wrong.push(`page, ${name}: ${page.refusal.stack}`)
  if (sorted(page.payload ?? null) !== sorted(payload)) wrong.push(`page, ${name}: ${page.refusal ?? 'accepted'}`)
  counts[payload ? 'accepted' : 'refused'] += 1
  counts.sameWords += refusal !== null && page.refusal?.message === refusal
  const jose = await judged(() => checkWithJose(Buffer.from(file, 'base64').toString(), id, keys))
  if (payload && oneKey(keys) && sorted(jose.payload ?? null) !== sorted(payload)) wrong.push(`jose, ${name}: ${jose.refusal}`)
  if (SUBSTANCE.test(refusal ?? '') && !jose.refusal) wrong.push(`jose, ${name}: accepted`)
}

for (const text of wrong.slice(0, 20)) console.error(`differs: ${text}`)
console.log(`jose: ${counts.certificates} certificates read as Python reads them`)
console.log(`receipts: ${counts.accepted} accepted by Python, the page and jose; ` +
  `${counts.refused} refused by Python and the page, ${counts.sameWords} of them in the same words`)
console.log(wrong.length ? `${wrong.length} differ` : 'no verdict differs')
process.exitCode = wrong.length ? 1 : 0
