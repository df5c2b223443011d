package agent

import (
	"encoding/binary"
	"fmt"
)

// memoryID identifies memory of which both ends have a copy. The client assigns it; 0 is
// none.
type memoryID uint64

// Records of memory frames. Only the client sends recordNew and recordDrop.
const (
	recordNew    = 1 // id, length, address modulo the page
	recordChange = 2 // id, change
	recordDrop   = 3 // id
)

// memoryFrameLen limits a memory frame. Changes are sent in as many frames as needed.
const memoryFrameLen = 256 << 10

// record is an entry of a memory frame.
type record struct {
	kind   byte
	id     memoryID
	length uint64
	align  uint64
	change change
}

func (r *record) append(b []byte) []byte {
	b = append(b, r.kind)
	b = binary.AppendUvarint(b, uint64(r.id))
	switch r.kind {
	case recordNew:
		b = binary.AppendUvarint(b, r.length)
		b = binary.AppendUvarint(b, r.align)
	case recordChange:
		b = r.change.append(b)
	}
	return b
}

// maxRecordLen is the maximum length that append writes.
const maxRecordLen = 1 + binary.MaxVarintLen64 + maxChangeLen

func (r *record) parse(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: missing record", errBadMessage)
	}
	r.kind = b[0]
	b, err := parseUvarint(b[1:], (*uint64)(&r.id))
	if err != nil {
		return nil, err
	}
	switch r.kind {
	case recordNew:
		if b, err = parseUvarint(b, &r.length); err != nil {
			return nil, err
		}
		return parseUvarint(b, &r.align)
	case recordChange:
		return r.change.parse(b)
	case recordDrop:
		return b, nil
	default:
		return nil, fmt.Errorf("%w: memory record of unknown kind %d", errBadMessage, r.kind)
	}
}

func parseUvarint(b []byte, into *uint64) ([]byte, error) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return nil, fmt.Errorf("%w: invalid number", errBadMessage)
	}
	*into = n
	return b[size:], nil
}

// recordWriter writes records into memory frames. Every frame begins with the number of the
// last memory frame that its sender has received.
type recordWriter struct {
	got  uint64
	send func(body []byte)
	b    []byte
}

// add adds a record, and sends the frame when it is full.
func (w *recordWriter) add(r *record) {
	if w.b == nil {
		w.b = binary.AppendUvarint(make([]byte, 0, 4<<10), w.got)
	}
	w.b = r.append(w.b)
	if len(w.b) > memoryFrameLen-maxRecordLen {
		w.flush()
	}
}

// flush sends the last frame.
func (w *recordWriter) flush() {
	if w.b != nil {
		w.send(w.b)
		w.b = nil
	}
}

// readRecords calls each for all records of a memory frame, and before that got with the
// number at its start.
func readRecords(body []byte, got func(uint64), each func(*record) error) error {
	var n uint64
	body, err := parseUvarint(body, &n)
	if err != nil {
		return err
	}
	got(n)
	var r record
	for len(body) > 0 {
		if body, err = r.parse(body); err != nil {
			return err
		}
		if err := each(&r); err != nil {
			return err
		}
	}
	return nil
}
