package traffic

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// TransportTraits are what a program over reliable connections has to know of a
// transport that is not InfiniBand's. The zero value is InfiniBand's and RoCE's.
type TransportTraits struct {
	// ByCM: only the connection manager makes a queue pair ready. Both ends of a
	// connection fail together then.
	ConnectsByCM bool
	// NoRNR: a message that finds no receive ends the connection, so that receives
	// must be there before it is sent.
	NoRNR bool
	// Unproven: a send or write completes when the device has taken it, wherever it
	// is then. Only what is answered (a read, an atomic) proves that it has arrived,
	// and all before it.
	CompletesEarly bool
	// LateAtomics: an atomic may be carried out after messages and writes behind it
	// have arrived. RFC 7306 says so in section 5.4 (rules 4 and 6) and in the rows of
	// its table (section 7) where an atomic comes first: a send, a write or immediate
	// data behind it has no order of placement with it, and may be there before it
	// is answered. Only another atomic or a read waits its turn behind it; or
	// anything that the verbs' fence holds back until all before it was answered.
	LateAtomics bool
	// BareImm: immediate data comes alone or behind a write, never with a message.
	// What is sent alone right behind a plain write looks like a write with it.
	SeparateImm bool
	// PortInArea: the header area of a datagram is that of its message alone, as if
	// UDP had carried it, with the source port in octets 2 and 3.
	PortInGRH bool
	// MissingOps are operations of reliable connections that there are not.
	MissingOps []verbs.WROpcode
}

// TraitsOf are those of a device: what its transport is like, less what it does
// not claim to be able to do.
func TraitsOf(dev verbs.Context) (m TransportTraits, err error) {
	attr, err := dev.QueryDevice()
	if err != nil {
		return m, err
	}
	if dev.Info().Transport == verbs.TransportIWARP {
		m = TransportTraits{ConnectsByCM: true, NoRNR: true, CompletesEarly: true, LateAtomics: true, SeparateImm: true}
		if !attr.Caps.Has(verbs.CapRC) { // over UDP: what completes has arrived, if it is reliable
			m = TransportTraits{LateAtomics: true, SeparateImm: true, PortInGRH: true}
		}
	}
	for _, o := range []struct {
		cap verbs.Caps
		ops []verbs.WROpcode
	}{
		{verbs.CapAtomics, []verbs.WROpcode{verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd}},
		{verbs.CapAtomicWrite, []verbs.WROpcode{verbs.OpAtomicWrite}},
		{verbs.CapFlush, []verbs.WROpcode{verbs.OpFlush}},
		{verbs.CapSendInv, []verbs.WROpcode{verbs.OpSendInv}},
		{verbs.CapMWType2, []verbs.WROpcode{verbs.OpBindMW}},
	} {
		if !attr.Caps.Has(o.cap) {
			m.MissingOps = append(m.MissingOps, o.ops...)
		}
	}
	return m, nil
}

// Adapt makes the lane one that the transport can have: without the operations that
// it lacks, and with all receives posted before anything is sent where they may not
// be late.
func (m *TransportTraits) Adapt(l *Lane) {
	lacks := func(op verbs.WROpcode) bool { return slices.Contains(m.MissingOps, op) }
	l.Mix = slices.DeleteFunc(slices.Clone(l.Mix), lacks)
	if lacks(verbs.OpBindMW) {
		l.Windows = 0
	}
	if m.NoRNR {
		l.RecvDepth, l.RecvPacing = max(l.Messages[A], l.Messages[B], 1), Pacing{}
	}
}

// problems are what a lane asks for that the transport has not.
func (m *TransportTraits) problems(l *Lane) (errs []error) {
	for _, op := range m.MissingOps {
		if slices.Contains(l.Mix, op) {
			errs = append(errs, fmt.Errorf("Mix has %v, which the transport has not", op))
		}
	}
	if m.ConnectsByCM && l.Service != RC {
		errs = append(errs, errors.New("the transport has connections only, of RC"))
	}
	if m.NoRNR && l.RecvDepth < max(l.Messages[A], l.Messages[B]) {
		errs = append(errs, fmt.Errorf("%d receives for %d messages: a message that finds none ends the connection", l.RecvDepth, max(l.Messages[A], l.Messages[B])))
	}
	return errs
}
