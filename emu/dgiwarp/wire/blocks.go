package wire

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Data is the position of a ULPDU in its flow. It follows the Ack, if there is one.
//
//	0 epoch | 4 sequence number | 8 timestamp
//	12 proof(8) | 20 incarnation | 24 source key, if FlagStart
type Data struct {
	Epoch Epoch
	Seq   Seq
	// Timestamp is the sender's clock in microseconds at this transmission.
	Timestamp uint32
	// Proof proves the sender's address: the cookie of a Challenge, or the epoch of the flow
	// in the other direction.
	Proof uint64
	// Incarnation of the sender's queue pair: another one each time it is created.
	Incarnation uint32
	// SourceKey is the key of the sender's queue pair.
	SourceKey uint32
}

// Ack acknowledges a flow in the other direction.
//
//	0 epoch | 4 next | 8 echo | 12 window(2) | 14 SACK words(1) | 15 reserved
//	16 the words
type Ack struct {
	Epoch Epoch // of the flow that is acknowledged
	Next  Seq   // the first packet that has not arrived
	// Echo is the timestamp of the packet that caused the acknowledgement.
	Echo uint32
	// Window is the number of packets from Next on that the receiver accepts; 0: it is busy.
	Window   uint16
	Words    uint8 // number of valid words of Sack
	Reserved uint8
	// Sack has a bit for each packet after Next: bit i of word w is that of packet Next+1+32w+i.
	Sack [MaxSackWords]uint32
}

// Challenge is the answer to a packet that starts a flow without a valid proof.
//
//	0 epoch | 4 incarnation | 8 cookie(8)
type Challenge struct {
	Epoch       Epoch  // of the new flow
	Incarnation uint32 // of the challenger's queue pair
	Cookie      uint64
}

// Reason is the reason of a Refusal.
type Reason uint8

// The reasons.
const (
	ReasonUnknown Reason = 1 // no such flow: it has ended, or never started
	ReasonNoQP    Reason = 2 // no such queue pair, or one that is not reliable
	ReasonState   Reason = 3 // the queue pair is not ready to receive
	ReasonFull    Reason = 4 // no room for another peer
)

// String returns the reason as text.
func (r Reason) String() string {
	texts := [...]string{"reason 0", "unknown flow", "no such reliable queue pair", "the queue pair is not ready", "no room for another peer"}
	if int(r) < len(texts) {
		return texts[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Refusal is the answer to a packet of a flow that does not exist.
//
//	0 epoch | 4 reason(1) | 5 reserved(3)
type Refusal struct {
	Epoch    Epoch
	Reason   Reason
	Reserved [3]uint8
}

var (
	errShortData      = shortError("data block", DataLen)
	errShortStart     = shortError("start of a flow", StartLen)
	errShortAck       = shortError("acknowledgement", AckLen)
	errShortSack      = fmt.Errorf("SACK words: %w", ErrShort)
	errManyWords      = fmt.Errorf("more than %d SACK words: %w", MaxSackWords, ErrLong)
	errShortChallenge = shortError("challenge", ChallengeLen)
	errShortRefusal   = shortError("refusal", RefusalLen)
)

// Append appends d in wire order and returns the extended slice. start is whether the packet has
// FlagStart (no packet of its flow has been acknowledged yet): only then Proof, Incarnation and
// SourceKey are included.
func (d *Data) Append(b []byte, start bool) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(d.Epoch))
	b = binary.BigEndian.AppendUint32(b, uint32(d.Seq))
	b = binary.BigEndian.AppendUint32(b, d.Timestamp)
	if start {
		b = binary.BigEndian.AppendUint64(b, d.Proof)
		b = binary.BigEndian.AppendUint32(b, d.Incarnation)
		b = binary.BigEndian.AppendUint32(b, d.SourceKey)
	}
	return b
}

// Parse decodes d from the front of b and returns the octets that follow. start is whether the
// packet has FlagStart (no packet of its flow has been acknowledged yet): only then Proof,
// Incarnation and SourceKey are included.
func (d *Data) Parse(b []byte, start bool) (rest []byte, err error) {
	if len(b) < DataLen {
		return nil, errShortData
	}
	*d = Data{
		Epoch: Epoch(binary.BigEndian.Uint32(b)), Seq: Seq(binary.BigEndian.Uint32(b[4:])),
		Timestamp: binary.BigEndian.Uint32(b[8:]),
	}
	b = b[DataLen:]
	if !start {
		return b, nil
	}
	if len(b) < StartLen {
		return nil, errShortStart
	}
	d.Proof = binary.BigEndian.Uint64(b)
	d.Incarnation = binary.BigEndian.Uint32(b[8:])
	d.SourceKey = binary.BigEndian.Uint32(b[12:])
	return b[StartLen:], nil
}

// Len returns the length of a on the wire in octets, with its SACK words.
func (a *Ack) Len() int { return AckLen + SackWordLen*int(min(a.Words, MaxSackWords)) }

// Append appends a in wire order, with at most MaxSackWords words, and returns the extended slice.
func (a *Ack) Append(b []byte) []byte {
	words := min(a.Words, MaxSackWords)
	b = binary.BigEndian.AppendUint32(b, uint32(a.Epoch))
	b = binary.BigEndian.AppendUint32(b, uint32(a.Next))
	b = binary.BigEndian.AppendUint32(b, a.Echo)
	b = binary.BigEndian.AppendUint16(b, a.Window)
	b = append(b, words, a.Reserved)
	for _, w := range a.Sack[:words] {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

// Parse decodes a from the front of b and returns the octets that follow. It returns ErrShort if b
// ends inside the Ack, and ErrLong if the Ack has more than MaxSackWords SACK words.
func (a *Ack) Parse(b []byte) (rest []byte, err error) {
	if len(b) < AckLen {
		return nil, errShortAck
	}
	*a = Ack{
		Epoch: Epoch(binary.BigEndian.Uint32(b)), Next: Seq(binary.BigEndian.Uint32(b[4:])),
		Echo: binary.BigEndian.Uint32(b[8:]), Window: binary.BigEndian.Uint16(b[12:]), Words: b[14], Reserved: b[15],
	}
	b = b[AckLen:]
	switch {
	case a.Words > MaxSackWords:
		return nil, errManyWords
	case len(b) < int(a.Words)*SackWordLen:
		return nil, errShortSack
	}
	for i := range a.Words {
		a.Sack[i] = binary.BigEndian.Uint32(b)
		b = b[SackWordLen:]
	}
	return b, nil
}

// SackSpan returns the number of packets from Next up to and including the last one that Sack
// acknowledges; 0 if Sack is empty. Bit i of word w stands for packet Next+1+32w+i.
func (a *Ack) SackSpan() int32 {
	for w := int32(min(a.Words, MaxSackWords)) - 1; w >= 0; w-- {
		if n := bits.Len32(a.Sack[w]); n > 0 {
			return 1 + 32*w + int32(n)
		}
	}
	return 0
}

// Append appends c in wire order and returns the extended slice.
func (c *Challenge) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(c.Epoch))
	b = binary.BigEndian.AppendUint32(b, c.Incarnation)
	return binary.BigEndian.AppendUint64(b, c.Cookie)
}

// Parse decodes c from the front of b and returns the octets that follow.
func (c *Challenge) Parse(b []byte) (rest []byte, err error) {
	if len(b) < ChallengeLen {
		return nil, errShortChallenge
	}
	c.Epoch = Epoch(binary.BigEndian.Uint32(b))
	c.Incarnation = binary.BigEndian.Uint32(b[4:])
	c.Cookie = binary.BigEndian.Uint64(b[8:])
	return b[ChallengeLen:], nil
}

// Append appends r in wire order and returns the extended slice.
func (r *Refusal) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(r.Epoch))
	return append(b, uint8(r.Reason), r.Reserved[0], r.Reserved[1], r.Reserved[2])
}

// Parse decodes r from the front of b and returns the octets that follow.
func (r *Refusal) Parse(b []byte) (rest []byte, err error) {
	if len(b) < RefusalLen {
		return nil, errShortRefusal
	}
	r.Epoch = Epoch(binary.BigEndian.Uint32(b))
	r.Reason = Reason(b[4])
	r.Reserved = [3]uint8(b[5:])
	return b[RefusalLen:], nil
}
