package iwarpwire

import "github.com/fabrictest/fabrictest/emu/iwarp/wire"

// Defects of start-up frames that come in.

// completeKey is Defects.KeyPrefixOnly: takeFrame has compared the rest.
func completeKey(_ *Conn, f *frame) bool {
	key := wire.ReplyKey
	if f.request {
		key = wire.RequestKey
	}
	copy(f.octets, key)
	return true
}

// nothingReserved is Defects.MPAReservedRefused: a frame with a reserved flag is
// none at all.
func nothingReserved(_ *Conn, f *frame) bool {
	if f.has(flagReserved) {
		f.octets[0] = 0
	}
	return true
}

// atMostRevision2 is Defects.AnyRevision.
func atMostRevision2(_ *Conn, f *frame) bool {
	f.octets[revisionAt] = min(f.octets[revisionAt], wire.RevisionEnhanced)
	return true
}

// unknownRevision is one that nobody speaks.
const unknownRevision = 0xff

// notRevision1 is Defects.DemandsRevision2.
func notRevision1(_ *Conn, f *frame) bool {
	if f.request && f.revision() == wire.RevisionRFC5044 {
		f.octets[revisionAt] = unknownRevision
	}
	return true
}

// fillDepths is one half of Defects.ShortFramesTaken: depths that are missing are 0.
func fillDepths(_ *Conn, f *frame) bool {
	if b := f.private(); f.has(flagEnhanced) && f.revision() >= wire.RevisionEnhanced && len(b) < wire.EnhancedLen {
		f.setPrivate(append(b, make([]byte, wire.EnhancedLen-len(b))...))
	}
	return true
}

// cutPrivateData is Defects.LongPrivateDataTaken. Nobody has room for more.
func cutPrivateData(_ *Conn, f *frame) bool {
	if b := f.private(); f.request && len(b) > wire.MaxPrivateData {
		f.setPrivate(b[:wire.MaxPrivateData])
	}
	return true
}

// allIsPrivate is Defects.PrivateDataOverrun.
func allIsPrivate(_ *Conn, f *frame) bool {
	if f.request {
		b := append(f.private(), f.behind...)
		f.setPrivate(b[:min(len(b), wire.MaxPrivateData)])
		f.behind = nil
	}
	return true
}

// loseReason is one half of Defects.RejectCloses: what a refusal says is lost.
func loseReason(_ *Conn, f *frame) bool {
	if f.reply() && f.has(flagReject) {
		n := 0
		if _, ok := f.enhanced(); ok {
			n = wire.EnhancedLen
		}
		f.setPrivate(f.private()[:n])
	}
	return true
}

// ignoreReject is Defects.RejectIsAccept. A refusal may say less than an acceptance
// must.
func ignoreReject(c *Conn, f *frame) bool {
	if !f.reply() || !f.has(flagReject) {
		return true
	}
	f.clear(flagReject)
	if _, ok := f.enhanced(); !ok && c.own.sound.enhanced {
		f.octets[revisionAt] = wire.RevisionEnhanced
		f.enhance(wire.Enhanced{PeerToPeer: c.own.sound.data.PeerToPeer, RTRWrite: true, IRD: wire.DepthNotNegotiated, ORD: wire.DepthNotNegotiated})
	}
	return true
}

// openDepths is Defects.ReplyDepthsIgnored: depths that nobody looks at could as
// well be left open.
func openDepths(_ *Conn, f *frame) bool {
	if e, ok := f.enhanced(); ok && f.reply() {
		e.IRD, e.ORD = wire.DepthNotNegotiated, wire.DepthNotNegotiated
		f.setEnhanced(e)
	}
	return true
}

// onlyWrite is Defects.RTRUnasked.
func onlyWrite(_ *Conn, f *frame) bool {
	if e, ok := f.enhanced(); ok && f.reply() && e.PeerToPeer {
		e.RTRSend, e.RTRWrite, e.RTRRead = false, true, false
		f.setEnhanced(e)
	}
	return true
}

// claimCRC is one half of Defects.CRCAlwaysChecked: the sound side checks CRCs if
// somebody asks for them.
func claimCRC(_ *Conn, f *frame) bool {
	f.set(flagCRC)
	return true
}

// Defects of start-up frames that go out.

// unclaimCRC takes back in a Reply what claimCRC has caused.
func unclaimCRC(c *Conn, f *frame) bool {
	if f.reply() && c.edge.noCRC && c.peer.wire.flags&flagCRC == 0 {
		f.clear(flagCRC)
	}
	return true
}

// ownWish is one half of Defects.CRCNeedsBoth: a Reply has C if this side wants CRCs,
// and not because the other does.
func ownWish(c *Conn, f *frame) bool {
	if f.reply() && c.edge.noCRC {
		f.clear(flagCRC)
	}
	return true
}

// noReject is the other half of Defects.RejectCloses.
func noReject(_ *Conn, f *frame) bool { return !f.reply() || !f.has(flagReject) }

// enhanceOld is Defects.EnhancedRevision1. What a Request would say in revision 2,
// the one before it has said.
func enhanceOld(c *Conn, f *frame) bool {
	if !f.request {
		return true
	}
	if e, ok := f.enhanced(); ok {
		c.edge.depths = &e
		return true
	}
	e := wire.Enhanced{IRD: wire.DepthNotNegotiated, ORD: wire.DepthNotNegotiated}
	if c.edge.depths != nil {
		e = *c.edge.depths
	}
	f.enhance(e)
	return true
}

// enhanceReply is Defects.ForcesEnhanced.
func enhanceReply(_ *Conn, f *frame) bool {
	if f.reply() && !f.has(flagEnhanced) {
		f.enhance(wire.Enhanced{IRD: wire.DepthNotNegotiated, ORD: wire.DepthNotNegotiated})
	}
	return true
}

// grantAll is Defects.DepthsUnbounded. It is only a number: the NIC has as many
// places as before.
func grantAll(c *Conn, f *frame) bool {
	e, ok := f.enhanced()
	if asked := c.peer.wire.data.ORD; ok && f.reply() && asked != wire.DepthNotNegotiated {
		e.IRD = max(e.IRD, asked)
		f.setEnhanced(e)
	}
	return true
}

// clearFlags is Defects.ForgetsPeerToPeer.
func clearFlags(_ *Conn, f *frame) bool {
	if e, ok := f.enhanced(); ok && f.reply() {
		f.setEnhanced(wire.Enhanced{IRD: e.IRD, ORD: e.ORD})
	}
	return true
}

// offerNothing is Defects.NoRTROffered.
func offerNothing(_ *Conn, f *frame) bool {
	if e, ok := f.enhanced(); ok && f.request {
		f.setEnhanced(wire.Enhanced{PeerToPeer: e.PeerToPeer, IRD: e.IRD, ORD: e.ORD})
	}
	return true
}

// repeatFlags is Defects.RTRBitsLeft.
func repeatFlags(c *Conn, f *frame) bool {
	if e, ok := f.enhanced(); ok && f.reply() && !e.PeerToPeer {
		asked := &c.peer.wire.data
		e.RTRSend, e.RTRWrite, e.RTRRead = asked.RTRSend, asked.RTRWrite, asked.RTRRead
		f.setEnhanced(e)
	}
	return true
}

// talkAfterReject is Defects.TalksAfterReject.
func talkAfterReject(_ *Conn, f *frame) bool {
	if f.reply() && f.has(flagReject) {
		w := wire.NewFramer(wire.Framing{CRC: true})
		f.behind = w.Append(nil, terminate(wire.TermMPAFrame).octets)
	}
	return true
}

// uncount is Defects.EnhancedUncounted.
func uncount(_ *Conn, f *frame) bool {
	if _, ok := f.enhanced(); ok {
		b := f.private()
		f.setPrivate(b[wire.EnhancedLen:])
		f.octets = append(f.octets[:wire.StartFrameLen], b...)
	}
	return true
}

// keyLetter is where the two keys differ.
const keyLetter = 9

// otherKey is Defects.KeysExchanged.
func otherKey(_ *Conn, f *frame) bool {
	f.octets[keyLetter] ^= wire.RequestKey[keyLetter] ^ wire.ReplyKey[keyLetter]
	return true
}

// wrongOrder is Defects.ResponderSpeaksFirst: a Reply has been sent long ago, and a
// Request has to wait.
func wrongOrder(c *Conn, f *frame) bool {
	if f.request && !c.heard {
		c.waits = f.octets
		return false
	}
	return f.request
}

// earlyReply is what ResponderSpeaksFirst says to everybody.
func earlyReply() []byte {
	f := wire.StartFrame{Reply: true, CRC: true, Revision: wire.RevisionRFC5044}
	return f.Append(nil)
}
