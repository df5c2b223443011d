package cm

import "github.com/fabrictest/fabrictest/emu/softroce/mad"

// PerMessage counts by kind of message; see Of.
type PerMessage [mad.NumAttrs]uint64

// Of returns the count of one kind of message.
func (p PerMessage) Of(a mad.Attr) uint64 {
	if i, ok := a.Index(); ok {
		return p[i]
	}
	return 0
}

func (p *PerMessage) count(a mad.Attr) {
	if i, ok := a.Index(); ok {
		p[i]++
	}
}

// Counters say what an Agent has seen and why it ignored some of it.
type Counters struct {
	Sent       PerMessage // handed to the outbox, repetitions included
	Resent     PerMessage // sent again, by timer or for a duplicate
	Received   PerMessage // well-formed and of our class
	Duplicates PerMessage // received again

	BadLength  uint64 // not 256 bytes
	BadAddress uint64 // from or to no unicast address, or of different families
	NotCM      uint64 // another class or base version
	BadVersion uint64 // another class version
	BadMethod  uint64 // not Send
	BadAttr    uint64 // no message of the class

	UnknownConn uint64 // for a connection or lookup that does not exist
	BadSource   uint64 // for a connection with somebody else
	BadQPN      uint64 // DREQ for another queue pair
	WrongState  uint64 // makes no sense now

	Stale       uint64 // REQ or REP whose queue pair still has a connection
	Refused     uint64 // REQ or SIDR_REQ refused without asking a consumer
	BacklogFull uint64 // REQ or SIDR_REQ dropped: the listener has enough to do
	ConnLimit   uint64 // REQ or SIDR_REQ refused: MaxConns reached
	OutboxFull  uint64 // MAD to be sent, lost: MaxOutbox reached
	EventsFull  uint64 // MAD received, lost: MaxEvents reached
	Quirk       uint64 // ignored because a quirk says so
}
