package agent

import (
	"encoding/binary"
	"fmt"
)

// memoryID identifies memory that both ends have a copy of. The client assigns it; 0 is none.
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

// append appends the encoded record to b.
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

// parse decodes the record from the start of b and returns the rest.
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

// parseUvarint decodes a varint from the start of b and returns the rest.
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
	received uint64
	send     func(body []byte)
	frame    []byte // nil if empty
}

// add adds a record to the frame, and sends the frame when it is full. A frame begins with the
// number of frames received, w.received, which acknowledges them.
func (w *recordWriter) add(r *record) {
	if w.frame == nil {
		w.frame = binary.AppendUvarint(make([]byte, 0, 4<<10), w.received)
	}
	w.frame = r.append(w.frame)
	if len(w.frame) > memoryFrameLen-maxRecordLen {
		w.flush()
	}
}

// flush sends the last frame.
func (w *recordWriter) flush() {
	if w.frame != nil {
		w.send(w.frame)
		w.frame = nil
	}
}

// readRecords parses a memory frame. It calls acknowledge with the number at the start of the
// frame, which is how many frames its sender has received, and then handle for each record.
func readRecords(body []byte, acknowledge func(frames uint64), handle func(*record) error) error {
	var n uint64
	body, err := parseUvarint(body, &n)
	if err != nil {
		return err
	}
	acknowledge(n)
	var r record
	for len(body) > 0 {
		if body, err = r.parse(body); err != nil {
			return err
		}
		if err := handle(&r); err != nil {
			return err
		}
	}
	return nil
}
