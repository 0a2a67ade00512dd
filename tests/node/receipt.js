// A personal receipt, checked with jose and Node's own hashes; docs/vault.md shows this file.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { compactVerify, importSPKI } from 'jose'

const sha256 = (...parts) => createHash('sha256').update(Buffer.concat(parts)).digest()

// In one case, as Python's casefold has it.
const folded = (id) => id.normalize('NFD')
  .replace(/[^\u0131]+/g, (part) => part.toLowerCase().toUpperCase().toLowerCase()).replaceAll('\u03c2', '\u03c3')
  .replace(/[\u13f8-\u13fd\uab70-\uabbf]/g, (letter) => letter.toUpperCase())

export async function check(receipt, id, pem) {
  const { certificate, vault, request, salt, index, path } = JSON.parse(receipt)
  const { payload, protectedHeader } = await compactVerify(certificate, await importSPKI(pem, 'EdDSA'))
  const said = JSON.parse(new TextDecoder().decode(payload))
  const number = Buffer.alloc(8)
  number.writeBigUInt64BE(BigInt(request))
  const named = [Buffer.from(salt, 'base64url'), Buffer.from(vault.replaceAll('-', ''), 'hex'), number]
  const person = Buffer.from((said.fold_case ? folded(id) : id).trim().normalize())
  let place = index, last = said.people - 1, found = sha256(Buffer.of(0), sha256(...named, person))
  for (const one of path.map((text) => Buffer.from(text, 'base64url'))) {
    if (last === 0) throw Error('the path is too long')
    const left = place % 2 === 1 || place === last
    found = left ? sha256(Buffer.of(1), one, found) : sha256(Buffer.of(1), found, one)
    while (left && place % 2 === 0 && place > 0) [place, last] = [place / 2, Math.floor(last / 2)]
    ;[place, last] = [Math.floor(place / 2), Math.floor(last / 2)]
  }
  const fits = last === 0 && index >= 0 && index < said.people && found.toString('hex') === said.receipts
  const type = said.kind === 'unknown' ? 'expunge-unknown+jws' : 'expunge-certificate+jws'
  if (!fits || said.jti !== `${vault}/${request}` || protectedHeader.typ !== type) throw Error('it does not fit')
  return said
}

if (process.argv[1] === import.meta.filename) {
  const [file, id, key] = process.argv.slice(2)
  console.log(await check(readFileSync(file, 'utf8'), id, readFileSync(key, 'utf8')))
}
