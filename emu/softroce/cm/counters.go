package cm

import (
	"strings"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// PerMessage has a counter for each message type.
type PerMessage [wire.NumAttrs]uint64

// Of returns the counter of a message type.
func (p PerMessage) Of(a wire.Attr) uint64 {
	if i, ok := a.Index(); ok {
		return p[i]
	}
	return 0
}

// count increments the counter of a message type.
func (p *PerMessage) count(a wire.Attr) {
	if i, ok := a.Index(); ok {
		p[i]++
	}
}

// Counters count messages and the reasons for which an Agent dropped some.
type Counters struct {
	Sent       PerMessage // queued to send, including retransmissions
	Resent     PerMessage // retransmitted by timer or for a duplicate
	Received   PerMessage // valid MADs of class CM
	Duplicates PerMessage // duplicates received

	BadLength  uint64 // not 256 bytes
	BadAddress uint64 // not unicast, or different address families
	NotCM      uint64 // another class or base version
	BadVersion uint64 // another class version
	BadMethod  uint64 // not Send
	BadAttr    uint64 // unknown attribute

	UnknownConn uint64 // for a connection or lookup that does not exist
	BadSource   uint64 // not from the peer of the connection
	BadQPN      uint64 // DREQ with the wrong QP number
	WrongState  uint64 // not valid in the current state

	Stale       uint64 // REQ or REP whose queue pair still has a connection
	Refused     uint64 // REQ or SIDR_REQ rejected by the agent itself
	BacklogFull uint64 // REQ or SIDR_REQ dropped: backlog full
	ConnLimit   uint64 // REQ or SIDR_REQ refused: MaxConns reached
	OutboxFull  uint64 // MAD to be sent, lost: MaxOutbox reached
	EventsFull  uint64 // MAD received, lost: MaxEvents reached
}

// messageCounters has the names of the PerMessage counters. They are computed once because
// List is called often.
var messageCounters = func() (names [4]([wire.NumAttrs]string)) {
	for k, prefix := range []string{"cm_sent_", "cm_resent_", "cm_rcvd_", "cm_duplicate_"} {
		for i := range names[k] {
			names[k][i] = prefix + strings.ToLower((wire.AttrREQ + wire.Attr(i)).String())
		}
	}
	return names
}()

// List returns the counters by name, in a fixed order.
func (c *Counters) List() []verbs.Counter {
	list := make([]verbs.Counter, 0, 4*wire.NumAttrs+17)
	for k, counts := range []*PerMessage{&c.Sent, &c.Resent, &c.Received, &c.Duplicates} {
		for i, n := range counts {
			list = append(list, verbs.Counter{Name: messageCounters[k][i], Value: n})
		}
	}
	return append(list,
		verbs.Counter{Name: "cm_bad_length", Value: c.BadLength},
		verbs.Counter{Name: "cm_bad_address", Value: c.BadAddress},
		verbs.Counter{Name: "cm_not_cm", Value: c.NotCM},
		verbs.Counter{Name: "cm_bad_version", Value: c.BadVersion},
		verbs.Counter{Name: "cm_bad_method", Value: c.BadMethod},
		verbs.Counter{Name: "cm_bad_attr", Value: c.BadAttr},
		verbs.Counter{Name: "cm_unknown_conn", Value: c.UnknownConn},
		verbs.Counter{Name: "cm_bad_source", Value: c.BadSource},
		verbs.Counter{Name: "cm_bad_qpn", Value: c.BadQPN},
		verbs.Counter{Name: "cm_wrong_state", Value: c.WrongState},
		verbs.Counter{Name: "cm_stale", Value: c.Stale},
		verbs.Counter{Name: "cm_refused", Value: c.Refused},
		verbs.Counter{Name: "cm_backlog_full", Value: c.BacklogFull},
		verbs.Counter{Name: "cm_conn_limit", Value: c.ConnLimit},
		verbs.Counter{Name: "cm_outbox_full", Value: c.OutboxFull},
		verbs.Counter{Name: "cm_events_full", Value: c.EventsFull},
	)
}
