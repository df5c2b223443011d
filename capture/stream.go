package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Stream is a capture being read.
type Stream struct {
	src   source
	in    *input
	rec   record
	p     Packet
	arena []byte // holds the PDUs of a packet that do not lie in its data

	first, last time.Time
	ended       error

	flows *cache[flowKey, flow]
	conns *cache[connKey, conn]
	held  int // octets of TCP segments that wait for others
}

// Bounds on what is remembered.
const (
	maxFlows = 1 << 16 // of QPs, each of the order of 400 bytes
	maxConns = 1 << 9  // of TCP connections, each with up to two FPDUs under way
	maxHeld  = 16 << 20
)

// Open begins to read a capture of either format, packed with gzip or not. The
// error is ErrFormat if it is no capture at all.
func Open(r io.Reader) (*Stream, error) {
	in, err := newInput(r)
	if err != nil {
		return nil, err
	}
	s := &Stream{in: in, flows: newCache[flowKey, flow](maxFlows, nil)}
	s.conns = newCache[connKey, conn](maxConns, func(c *conn) { s.held -= c.half[0].heldLen + c.half[1].heldLen })
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
		s.src, err = openPcap(in, m)
	case blockSection:
		s.src, err = openPcapng(in)
	default:
		return nil, fmt.Errorf("%w: it begins with %x", ErrFormat, magic)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Interfaces are those that have been described up to here.
func (s *Stream) Interfaces() []Interface { return s.src.interfaces() }

// Comment is what the file says of itself.
func (s *Stream) Comment() string { return s.src.comment() }

// Host returns what an address is called, by what the file says of names and
// what could be told from its interfaces so far.
func (s *Stream) Host(a netip.Addr) (string, bool) {
	name, ok := s.src.hosts().of[a]
	return name, ok
}

// Next returns the next packet, valid until the next call. At the end it
// returns io.EOF, and where the file cannot be read further a *DamageError.
func (s *Stream) Next() (*Packet, error) {
	if s.ended != nil {
		return nil, s.ended
	}
	at := s.in.offset
	if err := s.src.next(&s.rec); err != nil {
		if !errors.Is(err, io.EOF) || errors.Is(err, ErrTruncated) {
			err = &CorruptError{Offset: at, Packet: s.p.Number, Err: err}
		}
		s.ended = err
		return nil, err
	}
	s.renew()
	s.dissect()
	s.src.hosts().learn(&s.p, s.src.interfaces())
	return &s.p, nil
}

// renew makes a packet of the record, with nothing decoded yet.
func (s *Stream) renew() {
	r, p := &s.rec, &s.p
	*p = Packet{
		Number: p.Number + 1, Time: r.time, Interface: s.src.interfaces()[r.iface], Direction: r.direction,
		Data: r.data, Length: r.length, Comments: r.comments, PDUs: p.PDUs[:0], Marks: p.Marks[:0],
	}
	s.arena = s.arena[:0]
	if !r.time.IsZero() {
		if s.first.IsZero() {
			s.first, s.last = r.time, r.time
		}
		p.SinceFirst, p.Delta, s.last = r.time.Sub(s.first), r.time.Sub(s.last), r.time
	}
	for _, c := range r.comments {
		p.mark(MarkComment, c)
	}
}
