package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Stream reads the packets of a capture.
type Stream struct {
	source
	*section
	p        Packet
	ulpduBuf []byte // copies of ULPDUs of the current packet

	first, last time.Time
	err         error

	flows         *lruCache[flowKey, flow]
	conns         *lruCache[connKey, conn]
	outOfOrderLen int // of all connections
}

// Bounds on flow state.
const (
	maxFlows           = 1 << 16 // QPs, about 400 bytes each
	maxConns           = 1 << 9  // TCP connections, each with up to two partial FPDUs
	maxOutOfOrderTotal = 16 << 20
)

// Open opens a pcap or pcapng file, maybe compressed with gzip. Other files return ErrFormat.
func Open(r io.Reader) (*Stream, error) {
	in, err := newInput(r)
	if err != nil {
		return nil, err
	}
	s := &Stream{section: &section{in: in, order: binary.LittleEndian, hosts: hostNames{}}, flows: newLRUCache[flowKey, flow](maxFlows, nil)}
	s.conns = newLRUCache[connKey, conn](maxConns, func(c *conn) { s.outOfOrderLen -= c[0].outOfOrderLen + c[1].outOfOrderLen })
	magic, err := in.r.Peek(4)
	switch {
	case errors.Is(err, io.EOF) && len(magic) == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(magic) < 4:
		return nil, fmt.Errorf("%w: it has %d bytes", ErrFormat, len(magic))
	}
	switch m := binary.LittleEndian.Uint32(magic); m {
	case magicMicro, magicNano, magicMicroSwapped, magicNanoSwapped:
		s.source, err = openPcap(s.section, m)
	case blockSection:
		s.source, err = openPcapng(s.section)
	default:
		err = fmt.Errorf("%w: it begins with %x", ErrFormat, magic)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Host returns an address's host name, from the name resolution blocks and interface names so far.
func (s *Stream) Host(a netip.Addr) (string, bool) {
	name, ok := s.hosts[a]
	return name, ok
}

// Next returns the next packet, valid until the next call. It returns io.EOF at the end
// and a *CorruptError if the file cannot be read further.
func (s *Stream) Next() (*Packet, error) {
	if s.err != nil {
		return nil, s.err
	}
	p, at := &s.p, s.in.offset
	*p = Packet{Number: p.Number + 1, PDUs: p.PDUs[:0], Marks: p.Marks[:0]}
	if s.err = s.next(p); s.err != nil {
		if !errors.Is(s.err, io.EOF) {
			s.err = &CorruptError{Offset: at, Packet: p.Number - 1, Err: s.err}
		}
		return nil, s.err
	}
	s.ulpduBuf = s.ulpduBuf[:0] // the copies of the previous packet's ULPDUs
	if !p.Time.IsZero() {
		if s.first.IsZero() {
			s.first, s.last = p.Time, p.Time
		}
		p.SinceFirst, p.Delta, s.last = p.Time.Sub(s.first), p.Time.Sub(s.last), p.Time
	}
	for _, c := range p.Comments {
		p.mark(MarkComment, c)
	}
	s.dissect()
	s.hosts.learn(&s.p, s.interfaces)
	return &s.p, nil
}
