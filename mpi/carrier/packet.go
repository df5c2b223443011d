package carrier

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// kind says what a packet has behind its prefix.
type kind uint8

const (
	word    kind = iota + 1 // a header of package wire, and the data of an eager message
	bare                    // nothing: the prefix is all
	ping                    // nothing, and a bare packet is wanted back
	ask                     // a connection is wanted
	answer                  // this is our end of it
	ready                   // both ends are; the first that comes by it
	bye                     // no more will come this way
	goodbye                 // neither from here
	offer                   // a ring
	put                     // data, for a place in memory
	get                     // a wish for data
	got                     // data that was wished for
	words                   // several words, each behind its length
	kinds

	dataAlone // that of an eager message, and no prefix: see naked
)

// sequenced reports whether packets of a kind have a place in the order.
func (k kind) sequenced() bool { return k != bare && k != ping }

// prefix begins every packet.
type prefix struct {
	kind    kind
	slots   uint8  // of the ring that the peer writes to, which are free again
	credits uint16 // receives that were posted again on the connection that it comes by
	from    uint32 // rank
	seq     uint32 // its number, of sequenced kinds
	ack     uint32 // all before this number have come
}

const prefixLen = 16

func (p *prefix) put(b []byte) {
	le := binary.LittleEndian
	b[0], b[1] = byte(p.kind), p.slots
	le.PutUint16(b[2:], p.credits)
	le.PutUint32(b[4:], p.from)
	le.PutUint32(b[8:], p.seq)
	le.PutUint32(b[12:], p.ack)
}

var errMalformed = errors.New("malformed packet")

func parsePrefix(b []byte) (p prefix, rest []byte, err error) {
	if len(b) < prefixLen {
		return p, nil, fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	le := binary.LittleEndian
	p = prefix{kind: kind(b[0]), slots: b[1], credits: le.Uint16(b[2:]), from: le.Uint32(b[4:]), seq: le.Uint32(b[8:]), ack: le.Uint32(b[12:])}
	if p.kind == 0 || p.kind >= kinds {
		return p, nil, fmt.Errorf("%w: kind %d", errMalformed, p.kind)
	}
	return p, b[prefixLen:], nil
}

// before compares numbers of packets, which wrap.
func before(a, b uint32) bool { return int32(a-b) < 0 }
