// Proves vectors.json from the other side: what docs/fingerprints.md says, written anew
// for Node.js, with nothing but its standard library. Run: node --test vectors.test.mjs
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const maxCanonicalBytes = 1 << 20;
const maxDepth = 128;

class Refused extends Error {}
const refuse = (problem) => { throw new Refused(problem); };

// ---- what is hashed

const frame = (...parts) => Buffer.concat(parts.flatMap((part) => {
  const bytes = Buffer.from(part);
  const length = Buffer.alloc(8);
  length.writeBigUInt64BE(BigInt(bytes.length));
  return [length, bytes];
}));
const sha256 = (bytes) => createHash('sha256').update(bytes).digest();
const sum = (scheme, ...parts) => ({ scheme, digest: sha256(frame('idemd-' + scheme, ...parts)).toString('hex') });

// ---- JSON

// parse reads one JSON value; numbers keep their text.
function parse(bytes) {
  if (bytes.length > maxCanonicalBytes) refuse('too-large');
  let text, at = 0;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch { refuse('invalid-utf-8'); }
  const match = (sticky) => { sticky.lastIndex = at; const m = sticky.exec(text); if (m) at += m[0].length; return m?.[0]; };
  const space = () => match(/[ \t\r\n]*/y);
  const expect = (c) => { space(); if (text[at++] !== c) refuse('invalid-syntax'); };
  const string = () => {
    space();
    const quoted = match(/"(?:[^"\\\u0000-\u001f]|\\(?:["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y) ?? refuse('invalid-syntax');
    const value = JSON.parse(quoted);
    return /\p{Surrogate}/u.test(value) ? refuse('invalid-syntax') : value;
  };
  const list = (end, one) => {
    space();
    if (text[at] === end) { at++; return; }
    for (;;) {
      one();
      space();
      if (text[at++] === end) return;
      if (text[at - 1] !== ',') refuse('invalid-syntax');
    }
  };
  const value = (depth) => {
    space();
    if ('{['.includes(text[at] ?? ' ') && depth === maxDepth) refuse('too-deep');
    switch (text[at]) {
      case '{': {
        const members = new Map();
        at++;
        list('}', () => {
          const name = string();
          if (members.has(name)) refuse('duplicate-name');
          expect(':');
          members.set(name, value(depth + 1));
        });
        return { members };
      }
      case '[': {
        const elements = [];
        at++;
        list(']', () => elements.push(value(depth + 1)));
        return { elements };
      }
      case '"': return { string: string() };
    }
    const literal = match(/true|false|null/y);
    if (literal) return { literal };
    return { number: match(/-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y) ?? refuse('invalid-syntax') };
  };
  const root = value(0);
  space();
  return at === text.length ? root : refuse('invalid-syntax');
}

// decimal is a number's digits without zeros at either end, and the power of ten.
function decimal(text) {
  const [, sign, whole, fraction = '', exponent = '0'] = /^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/.exec(text) ?? [];
  if (whole === undefined) return undefined;
  const all = whole + fraction;
  const trimmed = all.replace(/0+$/, '');
  const digits = trimmed.replace(/^0+/, '');
  if (digits === '') return '0';
  const power = BigInt(exponent) - BigInt(fraction.length) + BigInt(all.length - trimmed.length);
  return `${sign}${digits}e${power}`;
}

function isAmount(text) {
  const power = BigInt(decimal(text)?.split('e')[1] ?? 0);
  return decimal(text) !== undefined && power <= 1000000n && power >= -1000000n;
}

function number(text) {
  const double = Number(text);
  if (Math.abs(double) > Number.MAX_SAFE_INTEGER || decimal(text) !== decimal(String(double))) refuse('inexact-number');
  return String(double);
}

function time(text) {
  const m = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))$/.exec(text);
  if (!m) return text;
  const [year, month, day, hour, minute, second] = m.slice(1, 7).map(Number);
  const local = new Date(0);
  local.setUTCFullYear(year, month - 1, day);
  local.setUTCHours(hour, minute, second);
  const same = local.getUTCMonth() === month - 1 && local.getUTCDate() === day;
  if (!same || hour > 23 || minute > 59 || second > 59 || m[9] > 23 || m[10] > 59) return text;
  const offset = m[8] ? (m[8] === '-' ? -1 : 1) * (Number(m[9]) * 60 + Number(m[10])) : 0;
  const instant = new Date(local.getTime() - offset * 60000);
  if (instant.getUTCFullYear() < 0 || instant.getUTCFullYear() > 9999) return text;
  const fraction = (m[7] ?? '').replace(/0+$/, '');
  return instant.toISOString().slice(0, 19) + (fraction && '.' + fraction) + 'Z';
}

const email = (text) => text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, '').replace(/[A-Z]/g, (c) => c.toLowerCase());

const pointer = (text) => text.split('/').slice(1).map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
// leads is true if the pointer names the path itself, or something around it.
const leads = (to, path) => pointer(to).length <= path.length && pointer(to).every((step, i) =>
  typeof path[i] === 'number' ? step === '*' || step === String(path[i]) : step === path[i]);
const names = (to, path) => pointer(to).length === path.length && leads(to, path);

function isTwin(name, other) {
  return new RegExp(`^${name.replace(/[\\^$.*+?()[\]{}|/\-]/g, '\\$&')}$`, 'iu').test(other);
}

function checkTwins(node) {
  const keys = [...(node.members?.keys() ?? [])];
  keys.forEach((name, i) => { if (keys.slice(0, i).some((other) => isTwin(name, other))) refuse('case-twins'); });
  for (const child of node.members?.values() ?? node.elements ?? []) checkTwins(child);
}

// write is the canonical form of what counts; undefined if nothing does.
function write(node, path, rules) {
  const is = (list) => (list ?? []).some((to) => names(to, path));
  const counts = !(rules.exclude ?? []).some((to) => leads(to, path)) &&
    (!rules.include?.length || rules.include.some((to) => leads(to, path)));
  if (node.members) {
    const kept = [...node.members.keys()].sort().flatMap((name) => {
      const below = [...path, name];
      const text = write(node.members.get(name), below, rules);
      const omitted = Object.keys(rules.defaults ?? {}).some((to) => names(to, below) && text ===
        write(parse(Buffer.from(rules.defaults[to])), below, { decimals: rules.decimals, times: rules.times, emails: rules.emails }));
      return text === undefined || omitted ? [] : [JSON.stringify(name) + ':' + text];
    });
    return kept.length || counts ? `{${kept.join()}}` : undefined;
  }
  if (node.elements) {
    const kept = node.elements.map((one, i) => write(one, [...path, i], rules)).filter((text) => text !== undefined);
    return kept.length || counts ? `[${kept.join()}]` : undefined;
  }
  if (!counts) return undefined;
  const text = node.string ?? node.number;
  if (is(rules.decimals) && text !== undefined && isAmount(text)) return JSON.stringify(decimal(text));
  if (node.string !== undefined) {
    return JSON.stringify(is(rules.times) ? time(text) : is(rules.emails) ? email(text) : text);
  }
  return node.literal ?? number(text);
}

function canonical(bytes, rules, strict) {
  const node = parse(bytes);
  if (strict) checkTwins(node);
  return write(node, [], rules) ?? (rules.defaults ? '{}' : refuse('nothing-included'));
}

function sumJSON(bytes, subject, rules, strict) {
  try {
    return sum('json-v1', rules.operation ?? '', subject, canonical(bytes, rules, strict));
  } catch (problem) {
    if (strict || !(problem instanceof Refused)) throw problem;
    return sum('json-raw-v1', rules.operation ?? '', subject, bytes);
  }
}

// ---- HTTP

function pairs(encoded, exclude = []) {
  if (encoded.split('&').length > 10000) refuse('too-large');
  const text = (part) => {
    if (/%(?![0-9a-fA-F]{2})/.test(part)) refuse('invalid-syntax');
    return Buffer.from(part.replaceAll('+', ' ').replace(/%([0-9a-fA-F]{2})/g, (_, hex) => String.fromCharCode(parseInt(hex, 16))), 'latin1');
  };
  const all = encoded.split('&').filter((part) => part !== '').map((part) => {
    if (part.includes(';')) refuse('invalid-syntax');
    const at = part.indexOf('=');
    return at < 0 ? [text(part), ''] : [text(part.slice(0, at)), text(part.slice(at + 1))];
  }).filter(([name]) => !exclude.includes(name.toString()));
  all.sort(([a], [b]) => Buffer.compare(a, b));
  return frame('pairs', ...all.flat());
}

// What is sent as a form must look as programs write one.
function form(body) {
  if (!/^[^&=]*=[^&]*(&[^&=]*=[^&]*)*$/.test(body) || /[^A-Za-z0-9*._~!'()+%&=-]/.test(body)) refuse('invalid-syntax');
  return pairs(body);
}

function sumHTTP(v, rules, strict) {
  let raw = false;
  const orRaw = (make, instead) => {
    try { return make(); } catch (problem) {
      if (strict || !(problem instanceof Refused)) throw problem;
      raw = true;
      return instead;
    }
  };
  const headers = Object.fromEntries(Object.entries(v.headers ?? {}).map(([name, values]) => [name.toLowerCase(), values.join(', ')]));
  if (v.host) headers.host = v.host;
  const body = input(v);
  const type = (headers['content-type'] ?? '').trim();
  const media = type.split(';')[0].trim().toLowerCase();
  let contents = frame('raw', type, body);
  if (body.length === 0) {
    contents = frame('none');
  } else if (media === 'application/json' || media.endsWith('+json')) {
    contents = orRaw(() => frame('json', media, canonical(body, rules, strict)), frame('json-raw', media, body));
  } else if (media === 'application/x-www-form-urlencoded') {
    contents = frame('form', media, orRaw(() => form(body.toString('latin1')), frame('raw', body)));
  }
  const query = orRaw(() => pairs(v.query ?? '', rules.exclude_query), frame('raw', v.query ?? ''));
  const pattern = (v.pattern ?? '').replace(/\{([^}]*)\}/g, (all, name) => name === '$' ? all : name.endsWith('...') ? '{...}' : '{}');
  const path = frame(...v.path.split('/').map(decodeURIComponent));
  const chosen = (rules.headers ?? []).map((name) => name.toLowerCase()).sort().filter((name) => name in headers);
  return sum(raw ? 'http-raw-v1' : 'http-v1', rules.operation ?? '', v.subject ?? '', v.method, pattern, path, query,
    frame(...chosen.flatMap((name) => [name, headers[name]])), contents);
}

// ---- keys

function uuid8(...parts) {
  const id = sha256(frame('idemd-derive-v1', ...parts)).subarray(0, 16);
  id[6] = id[6] & 0x0f | 0x80;
  id[8] = id[8] & 0x3f | 0x80;
  return id.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

// ---- the vectors

function input(v) {
  if (v.base64 !== undefined) return Buffer.from(v.base64, 'base64');
  if (v.repeat) return Buffer.from(v.repeat.map(([text, times]) => text.repeat(times)).join(''));
  return Buffer.from(v.text ?? '');
}

// check compares both modes with the vector.
function check(v, make) {
  assert.deepEqual(make(false), { scheme: v.scheme, digest: v.digest });
  if (v.strict) {
    assert.throws(() => make(true), (problem) => problem instanceof Refused && problem.message === v.strict);
  } else {
    assert.deepEqual(make(true), { scheme: v.scheme, digest: v.digest });
  }
}

const vectors = JSON.parse(readFileSync(new URL('vectors.json', import.meta.url)));

for (const v of vectors.json) {
  test('json: ' + v.name, () => {
    const rules = v.rules ?? {};
    check(v, (strict) => sumJSON(input(v), v.subject ?? '', rules, strict));
    if (v.canonical !== undefined) assert.equal(canonical(input(v), rules, false), v.canonical);
  });
}
for (const v of vectors.http) {
  test('http: ' + v.name, () => check(v, (strict) => sumHTTP(v, v.rules ?? {}, strict)));
}
for (const v of vectors.keys) {
  test('keys: ' + v.parts.join(', '), () => {
    assert.equal(uuid8(...v.parts), v.derived);
    assert.equal(v.parts[0] + '_' + sha256(frame('idemd-id-v1', ...v.parts)).subarray(0, 16).toString('hex'), v.deterministic);
  });
}
