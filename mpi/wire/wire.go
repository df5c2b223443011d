// Package wire encodes the headers of messages between ranks: eager messages, rendezvous
// control messages, and messages of windows.
//
// A header has only the fields that its kind needs. The header of an eager message with the same
// envelope and flags as the previous one is a single byte, since small messages are mostly header.
// Headers must be decoded in the order in which they were encoded; the package does not send them.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind is the kind of a message.
type Kind uint8

// The kinds.
const (
	Eager   Kind = iota + 1 // eager message; its data follows the header
	SyncAck                 // the receive of a synchronous eager message was posted
	RTS                     // ready to send: the message is in the sender's memory
	CTS                     // clear to send: the message may be written to this memory
	Done                    // the data was written (Recv is set) or read (Send is set)
	RTR                     // ready to receive: a receive is posted, with this memory
	RTRAck                  // a message is being written to the memory of an RTR
	RTSAck                  // an RTS matched a receive that has sent no RTR
	Revoke                  // the receive of an RTR is being cancelled
	Revoked                 // the RTR will not be used, unless an RTRAck came before

	// Messages of the window with id Context:
	Accumulate      // elements to be combined with those of the window
	CompareSwap     // the compare element and the new element
	AccumulateReply // elements before an Accumulate or CompareSwap
	Flush           // request to acknowledge all earlier accumulates
	Flushed         // reply to Flush
	Post            // the sender's window is exposed to the receiver
	Complete        // the sender has closed its access epoch
	Lock            // lock request
	Granted         // lock granted
	Unlock          // lock released
	numKinds
)

// FirstWindowKind is the first kind of window messages.
const FirstWindowKind = Accumulate

var kindNames = [...]string{
	"", "EAGER", "SYNC-ACK", "RTS", "CTS", "DONE", "RTR", "RTR-ACK", "RTS-ACK", "REVOKE", "REVOKED",
	"ACCUMULATE", "SWAP", "OLD", "FLUSH", "FLUSHED", "POST", "COMPLETE", "LOCK", "GRANTED", "UNLOCK",
}

// String returns the name of the kind, or "kind" and its number if it is unknown.
func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Flags modify a message.
type Flags uint8

// The flags.
const (
	// Sync, of an eager message: the sender waits for a SyncAck.
	Sync Flags = 1 << iota
	// Ready, of a message: the send mode is ready.
	Ready
	// StopRTR, of an RTS: send no more RTRs for this envelope.
	StopRTR
	// ResumeRTR, of an RTS: send RTRs for this envelope again.
	ResumeRTR
	// NoRTSAck, of an RTS: send no RTSAck, and PostedFor in Done instead; of a Done: it has PostedFor.
	NoRTSAck
	// Advertised, of an RTR or a Revoke: the send of this envelope waits for the RTR, and does not
	// acknowledge it; of a Done: the data was written after such an RTR, and Size is that of the message.
	Advertised
	flagsEnd
)

// The flags of messages of windows.
const (
	// Fetch, of an accumulate: the origin wants the old elements.
	Fetch Flags = 1 << iota
	// Exclusive, of a lock request: the lock is exclusive.
	Exclusive
)

// MaxRails is the maximum number of rails.
const MaxRails = 4

// Memory is the address of remote memory, with a key per rail.
type Memory struct {
	Addr  uint64
	Keys  [MaxRails]uint32
	Rails uint8 // number of keys
}

// Region is memory that is registered.
type Region interface{ Memory() Memory }

// Transfer is an RDMA read of N bytes into Local, or a write from it.
type Transfer struct {
	Local  Region
	N      int
	Remote Memory
	Then   *Header // message to the peer after the data of a write; nil if there is none
}

// Header is the header of a message. The kind determines which fields are valid.
type Header struct {
	Kind      Kind
	Flags     Flags
	Context   uint32
	Tag       int32
	Size      uint64 // of the message or of the receive buffer
	Send      uint32 // request id of the sender
	Recv      uint32 // request id of the receiver
	PostedFor uint64 // RTSAck, and Done with NoRTSAck: how long the receive has been posted, in ns
	Memory    Memory
	Offset    uint64 // in the window
	Type      uint8  // of the elements
	Op        uint8  // reduction operation
}

// field is a set of header fields.
type field uint16

const (
	envelope field = 1 << iota
	size
	sendID // of the send request
	recvID // of the receive request
	postedFor
	memory
	context // without a tag
	elements
)

var fields = [numKinds]field{
	Eager:   envelope | sendID, // Send only with Sync; the size is that of the data
	SyncAck: sendID,
	RTS:     envelope | size | sendID | memory,
	CTS:     sendID | recvID | size | memory,
	Done:    sendID | recvID | postedFor | size, // PostedFor only with NoRTSAck, Size only with Advertised
	RTR:     envelope | size | recvID | memory,
	RTRAck:  envelope | size | recvID,
	RTSAck:  sendID | postedFor,
	Revoke:  envelope | recvID,
	Revoked: recvID,

	Accumulate:      context | elements | size, // Size only with Fetch, since a NoOp has no data
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

// fieldsOf returns the fields that a header with this kind and these flags has. An Eager
// header has a send request ID only with Sync, a Done header PostedFor only with NoRTSAck and a size
// only with Advertised, and an Accumulate header a size only with Fetch.
func fieldsOf(kind Kind, flags Flags) field {
	f := fields[kind]
	switch {
	case kind == Eager && flags&Sync == 0:
		f &^= sendID
	case kind == Done:
		if flags&NoRTSAck == 0 {
			f &^= postedFor
		}
		if flags&Advertised == 0 {
			f &^= size
		}
	case kind == Accumulate && flags&Fetch == 0:
		f &^= size
	}
	return f
}

// cachedFlag, in the kind byte, says that envelope and flags equal those of the last eager message.
const cachedFlag = 0x80

// CachedEager is the header of an eager message with the envelope and flags of the previous one.
const CachedEager = byte(Eager) | cachedFlag

// MaxLen is the length of the longest header.
const MaxLen = 2 + 8 + 8 + 4 + 4 + 8 + 9 + 4*MaxRails

// ErrMalformed is the error for an invalid header.
var ErrMalformed = errors.New("malformed header")

// Encoder encodes the headers of one direction between two ranks.
type Encoder struct{ last Header }

// Append appends the encoding of h to dst: kind, flags, and the fields that fieldsOf returns for
// them. An eager header with the context, tag and flags of the previous eager header is the byte
// CachedEager, followed by h.Send if Sync is set.
func (e *Encoder) Append(dst []byte, h *Header) []byte {
	le := binary.LittleEndian
	f := fieldsOf(h.Kind, h.Flags)
	if h.Kind == Eager {
		if h.Flags == e.last.Flags && h.Context == e.last.Context && h.Tag == e.last.Tag && e.last.Kind == Eager {
			dst = append(dst, CachedEager)
			if f&sendID != 0 {
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
	if f&elements != 0 { // of an accumulate or a compare-and-swap
		dst = le.AppendUint64(dst, h.Offset)
		dst = append(dst, h.Type, h.Op)
	}
	if f&size != 0 {
		dst = le.AppendUint64(dst, h.Size)
	}
	if f&sendID != 0 {
		dst = le.AppendUint32(dst, h.Send)
	}
	if f&recvID != 0 {
		dst = le.AppendUint32(dst, h.Recv)
	}
	if f&postedFor != 0 { // how long a receive has been posted
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

// Decoder decodes the headers of one direction between two ranks.
type Decoder struct{ last Header }

// Next decodes the first header of b and returns the bytes after it. A CachedEager header
// has the context, tag and flags of the previous eager message. Errors are ErrMalformed.
func (d *Decoder) Next(b []byte) (h Header, rest []byte, err error) {
	r := reader{b: b}
	kind := r.byte()
	if kind&cachedFlag != 0 {
		if kind != CachedEager {
			return Header{}, nil, fmt.Errorf("%w: %v cannot have a cached header", ErrMalformed, Kind(kind&^cachedFlag))
		}
		if d.last.Kind != Eager {
			return Header{}, nil, fmt.Errorf("%w: cached header without a previous eager message", ErrMalformed)
		}
		h = Header{Kind: Eager, Flags: d.last.Flags, Context: d.last.Context, Tag: d.last.Tag}
		if h.Flags&Sync != 0 {
			h.Send = r.uint32()
		}
		return h, r.b, r.err()
	}
	h.Kind, h.Flags = Kind(kind), Flags(r.byte())
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
	if f&sendID != 0 {
		h.Send = r.uint32()
	}
	if f&recvID != 0 {
		h.Recv = r.uint32()
	}
	if f&postedFor != 0 {
		h.PostedFor = r.uint64()
	}
	if f&memory != 0 {
		h.Memory.Addr, h.Memory.Rails = r.uint64(), r.byte()
		if h.Memory.Rails > MaxRails {
			return Header{}, nil, fmt.Errorf("%w: %d rails", ErrMalformed, h.Memory.Rails)
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

// reader reads little-endian numbers. Missing bytes read as 0 and are reported by err.
type reader struct {
	b         []byte
	truncated bool
}

// take returns the next n bytes; n is at most 8. If fewer remain, it discards them, marks the
// input as truncated and returns zeros.
func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.truncated, r.b = true, nil
		return make([]byte, 8)
	}
	next := r.b[:n]
	r.b = r.b[n:]
	return next
}

func (r *reader) byte() uint8    { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// err returns ErrMalformed if a number was read past the end of the input.
func (r *reader) err() error {
	if r.truncated {
		return fmt.Errorf("%w: truncated", ErrMalformed)
	}
	return nil
}
