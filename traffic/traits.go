package traffic

import (
	"github.com/fabrictest/fabrictest/verbs"
)

// TransportTraits are the properties of a transport that differ from InfiniBand and RoCE,
// which are the zero value.
type TransportTraits struct {
	// ConnectsByCM: only the connection manager connects queue pairs. Both ends of a
	// connection fail together.
	ConnectsByCM bool
	// NoRNR: a message without a posted receive ends the connection.
	NoRNR bool
	// CompletesEarly: a send or write completes when the device has accepted it, before
	// delivery. Only a read or atomic proves the delivery of all requests before it.
	CompletesEarly bool
	// AtomicsAfterLaterWrites: an atomic may be executed after later messages and writes have
	// arrived (RFC 7306, section 5.4, rules 4 and 6, and section 7). Only a later atomic or read,
	// or a fenced request, is ordered after it.
	AtomicsAfterLaterWrites bool
	// SeparateImm: immediate data arrives alone or after a write, never with a message.
	// Immediate data sent after a plain write looks like a write with immediate data.
	SeparateImm bool
	// UDPPortInGRH: the GRH of a datagram describes a UDP packet with the message alone, with
	// the source port in octets 2 and 3, as in datagram-iWARP.
	UDPPortInGRH bool
	// MissingOps are operations of reliable services that the device lacks.
	MissingOps []verbs.WROpcode
}

// TraitsOf returns how a device differs from InfiniBand and RoCE, by transport and capabilities.
func TraitsOf(dev verbs.Context) (traits TransportTraits, err error) {
	attr, err := dev.QueryDevice()
	if err != nil {
		return traits, err
	}
	if dev.Info().Transport == verbs.TransportIWARP {
		traits = TransportTraits{ConnectsByCM: true, NoRNR: true, CompletesEarly: true, AtomicsAfterLaterWrites: true, SeparateImm: true}
		if !attr.Caps.Has(verbs.CapRC) {
			// datagram-iWARP has no connections. A message of its reliable service waits for a
			// receive, and completes after delivery.
			traits = TransportTraits{AtomicsAfterLaterWrites: true, SeparateImm: true, UDPPortInGRH: true}
		}
	}
	for _, feature := range []struct {
		cap verbs.Caps
		ops []verbs.WROpcode
	}{
		{verbs.CapAtomics, []verbs.WROpcode{verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd}},
		{verbs.CapAtomicWrite, []verbs.WROpcode{verbs.OpAtomicWrite}},
		{verbs.CapFlush, []verbs.WROpcode{verbs.OpFlush}},
		{verbs.CapSendInv, []verbs.WROpcode{verbs.OpSendInv}},
		{verbs.CapMWType2, []verbs.WROpcode{verbs.OpBindMW}},
	} {
		if !attr.Caps.Has(feature.cap) {
			traits.MissingOps = append(traits.MissingOps, feature.ops...)
		}
	}
	return traits, nil
}
