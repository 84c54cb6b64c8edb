package pebblestore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// The manifest says which tables the store consists of: a snapshot, then one record for
// each change. Pebble takes the first record that it can't read for the end, as a power
// cut may leave it, and would drop every table of which the records behind it tell. So
// it is looked through before Pebble reads it.
//
// It is divided into blocks; each holds chunks of the form checksum (4 bytes), length
// (2), type (1), payload. No chunk crosses a block.
const (
	chunkBlock  = 32 << 10
	chunkHeader = 7
	// sector is what a disk writes whole or not at all.
	sector = 512

	chunkFull  = 1 // a record of one chunk
	chunkFirst = 2 // the first of a record of several
	chunkLast  = 4
)

var errManifest = errors.New("its manifest is damaged and the tables can't be told: restore a backup")

// checkManifest refuses a manifest that was damaged after it was written. A torn end
// passes: each record is synced before the next is written, so only the last one can be
// torn, and it was not yet relied on. Damage shows in that
//
//   - another record begins behind it, or
//   - the record is there up to its end, and wrong: of a torn one, a part is missing.
//
// What this can't tell from a torn end is a last record whose length was damaged.
func checkManifest(r io.Reader) error {
	block := make([]byte, chunkBlock)
	begun, broken := false, false
	for {
		n, err := io.ReadFull(r, block)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		at := 0
		for !broken && n-at >= chunkHeader {
			size := chunkSize(block[at:n])
			broken = size == 0
			begun = begun || !broken
			at += size
		}
		if broken && (wrong(block[:n], at) || recordBehind(block[at:n])) {
			return errManifest
		}
		if err != nil { // the end
			if !begun {
				return errManifest // its snapshot was synced before it came into force
			}
			return nil
		}
	}
}

// chunkSize is the size of the whole chunk that b begins with; 0 = there is none.
func chunkSize(b []byte) int {
	if len(b) < chunkHeader || b[6] < chunkFull || b[6] > chunkLast {
		return 0
	}
	size := chunkHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) {
		return 0
	}
	sum := crc32.Checksum(b[6:size], crc32.MakeTable(crc32.Castagnoli))
	if binary.LittleEndian.Uint32(b) != (sum>>15|sum<<17)+0xa282ead8 {
		return 0
	}
	return size
}

// recordBehind tells whether a record begins anywhere in b.
func recordBehind(b []byte) bool {
	for i := 0; i+chunkHeader <= len(b); i++ {
		if (b[i+6] == chunkFull || b[i+6] == chunkFirst) && chunkSize(b[i:]) > 0 {
			return true
		}
	}
	return false
}

// wrong tells whether all of the chunk at an offset was written, neither one of its
// sectors nor its end being empty, and it is not whole all the same.
func wrong(block []byte, at int) bool {
	if len(block)-at < chunkHeader {
		return false
	}
	end := at + chunkHeader + int(binary.LittleEndian.Uint16(block[at+4:]))
	if end > len(block) || block[end-1] == 0 || chunkSize(block[at:]) > 0 {
		return false
	}
	for at < end {
		next := min(end, (at/sector+1)*sector)
		if empty(block[at:next]) {
			return false
		}
		at = next
	}
	return true
}

func empty(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
