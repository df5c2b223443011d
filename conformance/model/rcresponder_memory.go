package model

import (
	"bytes"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// RCMemory is the expected content of registered memory. Bytes of a message that has not
// completed may have their old or their new value.
type RCMemory struct {
	Bytes   []byte
	open    []rcPlacement
	dropped []rcPlacement // of messages that will not complete
}

type rcPlacement struct {
	off  int
	data []byte
}

// Set changes bytes for certain.
func (m *RCMemory) Set(off int, data []byte) { copy(m.Bytes[off:], data) }

// mayHold notes bytes that the device may write now, or later, or never.
func (m *RCMemory) mayHold(off int, data []byte) {
	m.open = append(m.open, rcPlacement{off, data})
}

// complete makes the noted bytes certain.
func (m *RCMemory) complete() {
	for _, p := range m.open {
		m.Set(p.off, p.data)
	}
	m.open = nil
}

// abandon makes the noted bytes uncertain until Settle: their message was dropped.
func (m *RCMemory) abandon() { m.dropped, m.open = append(m.dropped, m.open...), nil }

// isCertain reports whether n bytes from off on can have one value only.
func (m *RCMemory) isCertain(off, n int) bool {
	for _, p := range slices.Concat(m.open, m.dropped) {
		if off < p.off+len(p.data) && p.off < off+n {
			return false
		}
	}
	return true
}

// Diff returns the offset of the first byte of got that a correct device cannot have; -1 if none.
func (m *RCMemory) Diff(got []byte) int {
	if bytes.Equal(got, m.Bytes) {
		return -1
	}
	seen := bytes.Clone(got)
	for _, p := range slices.Concat(m.open, m.dropped) {
		for i, b := range p.data {
			if seen[p.off+i] == b {
				seen[p.off+i] = m.Bytes[p.off+i]
			}
		}
	}
	for i, b := range seen {
		if b != m.Bytes[i] {
			return i
		}
	}
	return -1
}

// Settle takes over the actual content, after a message that failed halfway.
func (m *RCMemory) Settle(got []byte) {
	copy(m.Bytes, got)
	m.open, m.dropped = nil, nil
}

// RCKey is what an R_Key grants to the peer of the queue pair.
type RCKey struct {
	Mem *RCMemory
	// Off and Len are the part of Mem, and Addr is the remote address of its first byte.
	Off, Len int
	Addr     uint64
	Access   verbs.Access
	// CanInvalidate: a SEND with invalidate may name the key, because it is a type 2 window.
	CanInvalidate bool
}

// offset returns the place of n bytes at a remote address in k.Mem; false if not all are inside.
func (k *RCKey) offset(va uint64, n int) (off int, inside bool) {
	at := va - k.Addr
	if at > uint64(k.Len) || uint64(n) > uint64(k.Len)-at {
		return 0, false
	}
	return k.Off + int(at), true
}

// RCReceive is a posted receive. BadKey: the device may not write to its memory.
type RCReceive struct {
	ID     uint64
	Mem    *RCMemory
	SGL    []RCSegment
	BadKey bool
}

// RCSegment is an entry of a scatter list.
type RCSegment struct{ Off, Len int }

// room returns the total length of the receive's scatter entries.
func (r *RCReceive) room() (n int) {
	for _, s := range r.SGL {
		n += s.Len
	}
	return n
}

// scatter notes data of a message in the entries of the list, as far as they have room. at is the
// offset of the data in the message.
func (r *RCReceive) scatter(at int, data []byte) {
	for _, s := range r.SGL {
		if skip := min(at, s.Len); len(data) > 0 {
			n := min(s.Len-skip, len(data))
			r.Mem.mayHold(s.Off+skip, data[:n])
			data, at = data[n:], at-skip
		}
	}
}

// RCResponse is a response that the device sends, or may send.
type RCResponse struct {
	Packet ib.Packet
	// Alternative, if not nil, is another permitted form of the packet.
	Alternative *ib.Packet
	// Optional: the device may leave it out. A device may also leave out an ACK before another response.
	Optional bool
	// MinMSN and MaxMSN limit the MSN, and MaxCredits the credits; -1 if none may be advertised.
	MinMSN, MaxMSN uint32
	MaxCredits     int
}

// Faults returns how a packet differs from the response: want and found are empty if it does not.
func (r *RCResponse) Faults(got ib.Packet) (want, found string) {
	d := r.Packet.Diff(got)
	if d != nil && r.Alternative != nil {
		if r.Alternative.Matches(got) {
			d = nil
		}
	}
	switch credits, advertised := ib.Credits(got.Syndrome()); {
	case d != nil:
		return d.Want(), d.Got()
	case got.AETH == nil:
	case got.MSN() != r.MinMSN && (got.MSN()-r.MinMSN)&0xffffff > (r.MaxMSN-r.MinMSN)&0xffffff:
		return rcRange("MSN", int(r.MinMSN), int(r.MaxMSN)), rcRange("MSN", int(got.MSN()), int(got.MSN()))
	case got.AETH.Kind != nil && *got.AETH.Kind == ib.AckPositive && advertised && credits > r.MaxCredits:
		return rcRange("at most, credits", r.MaxCredits, r.MaxCredits), rcRange("credits", credits, credits)
	}
	return "", ""
}

// coversEarlier reports that an ACK may be left out if a later response arrives.
func (r *RCResponse) coversEarlier() bool { return r.Packet.IsAck(ib.AckPositive) }

// isAlso reports whether last, the packet that arrived last, can also be this response: one ACK or
// NAK may answer several requests.
func (r *RCResponse) isAlso(last ib.Packet) bool {
	want, found := r.Faults(last)
	return r.Packet.Opcode().Operation() == ib.OpAcknowledge && want == "" && found == ""
}

// MatchRCResponses compares the packets that arrived, in order, with the responses. missing is the
// first response that is still to come; nil if none is. bad is the index of the first packet that
// no response permits; -1 if there is none.
func MatchRCResponses(responses []RCResponse, got []ib.Packet) (missing *RCResponse, bad int) {
	next := 0
	for i, p := range got {
		at := next
		for at < len(responses) {
			if want, found := responses[at].Faults(p); want == "" && found == "" {
				break
			}
			if !responses[at].Optional && !responses[at].coversEarlier() {
				return &responses[at], i
			}
			at++
		}
		if at == len(responses) {
			if next < at {
				return &responses[next], i
			}
			return nil, i
		}
		next = at + 1
	}
	for ; next < len(responses); next++ {
		if r := &responses[next]; !r.Optional && !(len(got) > 0 && r.isAlso(got[len(got)-1])) {
			return &responses[next], -1
		}
	}
	return nil, -1
}
