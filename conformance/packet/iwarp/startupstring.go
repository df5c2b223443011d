package iwarp

import "github.com/fabrictest/fabrictest/conformance/packet"

// Oddities lists unusual values of a start-up frame as text. Cases decide whether one is an
// error.
func (s StartupFrame) Oddities() []string {
	var odd oddities
	switch key := packet.Get(s.Key, KeyRequest); key {
	case KeyRequest, KeyReply:
	default:
		odd.addf("key %q", key)
	}
	odd.unless("reserved bits", Val(s.Reserved), 0)
	rev := packet.Get(s.Rev, 1)
	if rev != 1 && rev != revEnhanced {
		odd.addf("revision %d", rev)
	}
	if n := Val(s.PDLength); n > maxPrivateData {
		odd.addf("private data of %d octets, the most there can be is %d", n, maxPrivateData)
	}
	switch {
	case Val(s.S) && rev < revEnhanced:
		odd.addf("S is set in revision %d", rev)
	case Val(s.S) && s.Enhanced == nil:
		odd.addf("S is set and there is no enhanced data")
	}
	if e := s.Enhanced; e != nil && !Val(e.PeerToPeer) && (Val(e.SendRTR) || Val(e.WriteRTR) || Val(e.ReadRTR)) {
		odd.addf("first messages are offered though A is not set")
	}
	if Val(s.R) && packet.Get(s.Key, KeyRequest) == KeyRequest {
		odd.addf("R is set in a Request")
	}
	return odd
}

// String formats the frame as a line of a ladder diagram: "MPA REPLY rev 2 C ird 4 ord 4
// p2p(write) 16 B".
func (s StartupFrame) String() string {
	var l packet.Line
	switch key := packet.Get(s.Key, KeyRequest); key {
	case KeyRequest:
		l.Addf("MPA REQUEST")
	case KeyReply:
		l.Addf("MPA REPLY")
	default:
		l.Addf("MPA KEY %q", key)
	}
	packet.AddField(&l, "rev %d", s.Rev)
	for _, f := range []struct {
		name string
		v    *bool
	}{{"M", s.M}, {"C", s.C}, {"S", s.S}, {"rejected", s.R}} {
		if Val(f.v) {
			l.Addf("%s", f.name)
		}
	}
	if Val(s.Reserved) != 0 {
		l.Addf("reserved %#x", *s.Reserved)
	}
	if s.Enhanced != nil {
		s.Enhanced.describe(&l)
	}
	if len(s.PrivateData) > 0 {
		l.Addf("%d B", len(s.PrivateData))
	}
	return l.String()
}

func (e *Enhanced) describe(l *packet.Line) {
	packet.AddField(l, "ird %d", e.IRD)
	packet.AddField(l, "ord %d", e.ORD)
	if Val(e.PeerToPeer) {
		l.Addf("p2p")
	}
	for _, f := range []struct {
		name string
		v    *bool
	}{{"rtr-send", e.SendRTR}, {"rtr-write", e.WriteRTR}, {"rtr-read", e.ReadRTR}} {
		if Val(f.v) {
			l.Addf("%s", f.name)
		}
	}
}
