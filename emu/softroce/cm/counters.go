package cm

import (
	"strings"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// PerMessage has a counter for each message type.
type PerMessage [wire.NumAttrs]uint64

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

	BadLength  uint64 `counter:"cm_bad_length"`  // not 256 bytes
	BadAddress uint64 `counter:"cm_bad_address"` // not unicast, or different address families
	NotCM      uint64 `counter:"cm_not_cm"`      // another class or base version
	BadVersion uint64 `counter:"cm_bad_version"` // another class version
	BadMethod  uint64 `counter:"cm_bad_method"`  // not Send
	BadAttr    uint64 `counter:"cm_bad_attr"`    // unknown attribute

	UnknownConn uint64 `counter:"cm_unknown_conn"` // for a connection or SIDR request that does not exist
	BadSource   uint64 `counter:"cm_bad_source"`   // not from the peer of the connection
	BadQPN      uint64 `counter:"cm_bad_qpn"`      // DREQ with the wrong QP number
	WrongState  uint64 `counter:"cm_wrong_state"`  // not valid in the current state

	Stale       uint64 `counter:"cm_stale"`        // REQ or REP whose queue pair still has a connection
	Refused     uint64 `counter:"cm_refused"`      // REQ or SIDR_REQ rejected by the agent itself
	BacklogFull uint64 `counter:"cm_backlog_full"` // REQ or SIDR_REQ dropped: backlog full
	ConnLimit   uint64 `counter:"cm_conn_limit"`   // REQ or SIDR_REQ refused: MaxConns reached
	OutboxFull  uint64 `counter:"cm_outbox_full"`  // MAD to be sent, lost: MaxOutbox reached
	EventsFull  uint64 `counter:"cm_events_full"`  // MAD received, lost: MaxEvents reached
}

var counterNames = nic.NewCounterNames[Counters]()

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
	list := make([]verbs.Counter, 0, 4*wire.NumAttrs+len(counterNames))
	for k, counts := range []*PerMessage{&c.Sent, &c.Resent, &c.Received, &c.Duplicates} {
		for i, n := range counts {
			list = append(list, verbs.Counter{Name: messageCounters[k][i], Value: n})
		}
	}
	return counterNames.Append(list, c)
}
