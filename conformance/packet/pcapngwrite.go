package packet

import (
	"encoding/binary"
	"io"
)

// CaptureWriter writes a pcapng file with nanosecond timestamps.
type CaptureWriter struct {
	w     io.Writer
	links map[LinkType]uint32
}

// NewCaptureWriter writes the start of a pcapng file, with a comment unless it is empty.
func NewCaptureWriter(w io.Writer, comment string) (*CaptureWriter, error) {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, magicOrder)
	b = le.AppendUint32(b, 1)                  // version 1.0
	b = le.AppendUint64(b, 0xffffffffffffffff) // of unknown length
	if comment != "" {
		b = appendOption(appendOption(b, optComment, []byte(comment)), optEnd, nil)
	}
	cw := &CaptureWriter{w, map[LinkType]uint32{}}
	return cw, cw.block(magicNG, b)
}

// Write adds a packet. Each link type gets its own interface.
func (cw *CaptureWriter) Write(c Captured) error {
	le := binary.LittleEndian
	id, ok := cw.links[c.Link]
	if !ok {
		b := le.AppendUint16(nil, uint16(c.Link))
		b = append(b, 0, 0, 0, 0, 0, 0) // of any length
		b = appendOption(b, optTSResol, []byte{nanoseconds})
		if err := cw.block(blockInterface, appendOption(b, optEnd, nil)); err != nil {
			return err
		}
		id = uint32(len(cw.links))
		cw.links[c.Link] = id
	}
	b := le.AppendUint32(nil, id)
	b = le.AppendUint32(b, uint32(uint64(c.At)>>32))
	b = le.AppendUint32(b, uint32(c.At))
	b = le.AppendUint32(b, uint32(len(c.Data)))
	b = le.AppendUint32(b, uint32(max(c.Size, len(c.Data))))
	b = append(b, c.Data...)
	b = append(b, make([]byte, -len(c.Data)&3)...)
	direction := []byte{1, 0, 0, 0}
	if c.Out {
		direction[0] = 2
	}
	if c.Comment != "" {
		b = appendOption(b, optComment, []byte(c.Comment))
	}
	b = appendOption(b, optFlags, direction)
	return cw.block(blockEnhanced, appendOption(b, optEnd, nil))
}

func (cw *CaptureWriter) block(kind uint32, body []byte) error {
	le := binary.LittleEndian
	size := uint32(len(body) + 12)
	b := le.AppendUint32(nil, kind)
	b = le.AppendUint32(b, size)
	b = append(b, body...)
	_, err := cw.w.Write(le.AppendUint32(b, size))
	return err
}

// appendOption appends an option, and truncates one that exceeds the maximum length.
func appendOption(b []byte, code uint16, v []byte) []byte {
	v = v[:min(len(v), 0xfff0)]
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	return append(b, make([]byte, -len(v)&3)...)
}
