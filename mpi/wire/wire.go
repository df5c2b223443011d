// Package wire is what ranks say to each other: the headers of messages, and of what
// settles between two ranks how a message travels.
//
// A header has only the fields that its kind needs. Those of eager messages are
// sent in full once and then, as long as they are the same, by a byte that says so:
// programs send the same envelope again and again, and small messages are mostly
// header. The package knows nothing of how headers travel; they must arrive in the
// order in which they were appended.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind says what a header is for.
type Kind uint8

// The kinds.
const (
	Eager   Kind = iota + 1 // a message, whole, behind the header
	SyncAck                 // an eager message that wants to know has met its receive
	RTS                     // ready to send: a message waits in its sender's memory
	CTS                     // clear to send: it may be written to this memory
	Done                    // of the data: written (Recv is set), or read (Send is)
	RTR                     // ready to receive: a receive waits for a message, here
	RTRAck                  // a message is being written where an RTR said
	RTSAck                  // an RTS has met a receive that has sent no RTR
	Revoke                  // the receive of an RTR is being cancelled
	Revoked                 // its RTR will not be used, unless an RTRAck came before

	// Of windows, whose name is the Context:
	Accumulate      // elements, behind the header, to be combined with those of a window
	CompareSwap     // an element to be compared with, and one to take its place
	AccumulateReply // what was there before either of these
	Flush           // says that all before it was carried out, please
	Flushed         // it was
	Post            // a window is open to the peer
	Complete        // the peer, to whom it was, is through with it
	Lock            // asks for a lock
	Granted         // the peer has it
	Unlock          // gives it back
	numKinds
)

// Windows is the first of the kinds that are about windows.
const FirstWindowKind = Accumulate

var names = [...]string{
	"", "EAGER", "SYNC-ACK", "RTS", "CTS", "DONE", "RTR", "RTR-ACK", "RTS-ACK", "REVOKE", "REVOKED",
	"ACCUMULATE", "SWAP", "OLD", "FLUSH", "FLUSHED", "POST", "COMPLETE", "LOCK", "GRANTED", "UNLOCK",
}

func (k Kind) String() string {
	if int(k) < len(names) && k > 0 {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Flags ride on headers.
type Flags uint8

// The flags.
const (
	// Sync, of an eager message: its sender waits until it has met its receive.
	Sync Flags = 1 << iota
	// Ready, of a message: its sender says that the receive is posted.
	Ready
	// StopRTR, of an RTS: send no RTRs for this envelope any more.
	StopRTR
	// ResumeRTR, of an RTS: do so again.
	ResumeRTR
	// Fetch, of an accumulate: its origin wants to know what was there before.
	Fetch
	// Exclusive, of a lock: nobody else may have one.
	Exclusive
	flagsEnd
)

// MaxRails is over how many NICs memory can be reached.
const MaxRails = 4

// Memory is where data is or goes, with a key for each rail.
type Memory struct {
	Addr  uint64
	Keys  [MaxRails]uint32
	Rails uint8 // how many keys there are
}

// Header is one. Which fields count, the kind says.
type Header struct {
	Kind      Kind
	Flags     Flags
	Context   uint32
	Tag       int32
	Size      uint64 // of the message, or of the memory that waits for one
	Send      uint32 // the sender's name for its request
	Recv      uint32 // the receiver's
	PostedFor uint64 // ns for which the receive of an RTS-ACK has waited
	Memory    Memory
	Offset    uint64 // in a window
	Type      uint8  // of the elements there
	Op        uint8  // what is done with them
}

// field says which fields a kind has.
type field uint16

const (
	envelope field = 1 << iota
	size
	send
	recv
	postedFor
	memory
	context // without a tag
	elements
)

var fields = [numKinds]field{
	Eager:   envelope | send, // Send only with Sync; the size is that of the data
	SyncAck: send,
	RTS:     envelope | size | send | memory,
	CTS:     send | recv | size | memory,
	Done:    send | recv,
	RTR:     envelope | size | recv | memory,
	RTRAck:  envelope | size | recv,
	RTSAck:  send | postedFor,
	Revoke:  envelope | recv,
	Revoked: recv,

	Accumulate:      context | elements | size, // Size only with Fetch: an accumulate that only looks has no data
	CompareSwap:     context | elements,
	AccumulateReply: context,
	Flush:           context,
	Flushed:         context,
	Post:            context,
	Complete:        context,
	Lock:            context,
	Granted:         context,
	Unlock:          context,
}

// of says which fields a header has.
func fieldsOf(kind Kind, flags Flags) field {
	f := fields[kind]
	switch {
	case kind == Eager && flags&Sync == 0:
		f &^= send
	case kind == Accumulate && flags&Fetch == 0:
		f &^= size
	}
	return f
}

// cached, in the byte of the kind, stands for the envelope and flags of the last
// eager message.
const cachedFlag = 0x80

// CachedEager is the whole header of an eager message that is as the last was.
const CachedEager = byte(Eager) | cachedFlag

// MaxLen is that of the longest header.
const MaxLen = 2 + 8 + 8 + 4 + 4 + 8 + 9 + 4*MaxRails

// ErrMalformed is a header that no rank sends.
var ErrMalformed = errors.New("malformed header")

// Encoder writes the headers of one direction between two ranks.
type Encoder struct{ last Header }

// Append writes a header behind dst.
func (e *Encoder) Append(dst []byte, h *Header) []byte {
	le := binary.LittleEndian
	f := fieldsOf(h.Kind, h.Flags)
	if h.Kind == Eager {
		if h.Flags == e.last.Flags && h.Context == e.last.Context && h.Tag == e.last.Tag && e.last.Kind == Eager {
			dst = append(dst, byte(Eager)|cachedFlag)
			if f&send != 0 {
				dst = le.AppendUint32(dst, h.Send)
			}
			return dst
		}
		e.last = *h
	}
	dst = append(dst, byte(h.Kind), byte(h.Flags))
	if f&envelope != 0 {
		dst = le.AppendUint32(dst, h.Context)
		dst = le.AppendUint32(dst, uint32(h.Tag))
	}
	if f&context != 0 {
		dst = le.AppendUint32(dst, h.Context)
	}
	if f&elements != 0 {
		dst = le.AppendUint64(dst, h.Offset)
		dst = append(dst, h.Type, h.Op)
	}
	if f&size != 0 {
		dst = le.AppendUint64(dst, h.Size)
	}
	if f&send != 0 {
		dst = le.AppendUint32(dst, h.Send)
	}
	if f&recv != 0 {
		dst = le.AppendUint32(dst, h.Recv)
	}
	if f&postedFor != 0 {
		dst = le.AppendUint64(dst, h.PostedFor)
	}
	if f&memory != 0 {
		dst = le.AppendUint64(dst, h.Memory.Addr)
		dst = append(dst, h.Memory.Rails)
		for _, k := range h.Memory.Keys[:h.Memory.Rails] {
			dst = le.AppendUint32(dst, k)
		}
	}
	return dst
}

// Decoder reads the headers of one direction between two ranks.
type Decoder struct{ last Header }

// Next reads a header from the front of b, and returns what is behind it.
func (d *Decoder) Next(b []byte) (h Header, rest []byte, err error) {
	r := reader{b: b}
	first := r.byte()
	if first&cachedFlag != 0 {
		if Kind(first&^cachedFlag) != Eager || d.last.Kind != Eager {
			return Header{}, nil, fmt.Errorf("%w: it stands for an eager one, and there was none", ErrMalformed)
		}
		h = Header{Kind: Eager, Flags: d.last.Flags, Context: d.last.Context, Tag: d.last.Tag}
		if h.Flags&Sync != 0 {
			h.Send = r.uint32()
		}
		return h, r.b, r.err()
	}
	h.Kind, h.Flags = Kind(first), Flags(r.byte())
	if h.Kind == 0 || h.Kind >= numKinds || h.Flags >= flagsEnd {
		return Header{}, nil, fmt.Errorf("%w: %v, flags %#x", ErrMalformed, h.Kind, uint8(h.Flags))
	}
	f := fieldsOf(h.Kind, h.Flags)
	if f&envelope != 0 {
		h.Context, h.Tag = r.uint32(), int32(r.uint32())
	}
	if f&context != 0 {
		h.Context = r.uint32()
	}
	if f&elements != 0 {
		h.Offset, h.Type, h.Op = r.uint64(), r.byte(), r.byte()
	}
	if f&size != 0 {
		h.Size = r.uint64()
	}
	if f&send != 0 {
		h.Send = r.uint32()
	}
	if f&recv != 0 {
		h.Recv = r.uint32()
	}
	if f&postedFor != 0 {
		h.PostedFor = r.uint64()
	}
	if f&memory != 0 {
		h.Memory.Addr, h.Memory.Rails = r.uint64(), r.byte()
		if h.Memory.Rails > MaxRails {
			return Header{}, nil, fmt.Errorf("%w: memory at %d rails", ErrMalformed, h.Memory.Rails)
		}
		for i := range h.Memory.Rails {
			h.Memory.Keys[i] = r.uint32()
		}
	}
	if err := r.err(); err != nil {
		return Header{}, nil, err
	}
	if h.Kind == Eager {
		d.last = h
	}
	return h, r.b, nil
}

// reader takes numbers from the front of bytes; what is missing is 0, and an error
// in the end.
type reader struct {
	b         []byte
	truncated bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.truncated, r.b = true, nil
		return make([]byte, 8)
	}
	part := r.b[:n]
	r.b = r.b[n:]
	return part
}

func (r *reader) byte() uint8    { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

func (r *reader) err() error {
	if r.truncated {
		return fmt.Errorf("%w: it is cut off", ErrMalformed)
	}
	return nil
}
