package cm

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// newREQ is a REQ as a would send it, for tests that make their own.
func newREQ() *wire.REQ {
	m := &wire.REQ{
		LocalCommID: 0x01020304, ServiceID: service, LocalCAGUID: guidA, LocalQPN: 0x4321, RespRes: 1, InitDepth: 1,
		RemoteRespTimeout: 20, LocalRespTimeout: 20, StartPSN: 0x777, RetryCount: 7, PKey: 0xFFFF, MTU: 3, RNRRetry: 7, MaxCMRetries: 15,
		Primary: wire.CMPath{
			LocalLID: wire.LIDNone, RemoteLID: wire.LIDNone, LocalGID: wire.GIDOf(addrA), RemoteGID: wire.GIDOf(addrB),
			HopLimit: 64, AckTimeout: 17,
		},
	}
	ip := wire.NewCMAHeader(addrA, addrB, 0x9999)
	copy(m.PrivateData[:], ip.Append(nil))
	return m
}

const injectTID = 0x1122

// inject hands b a hand-made message.
func (w *world) inject(from netip.Addr, attr wire.Attr, m message) {
	w.t.Helper()
	w.injectRaw(from, wire.NewMADHeader(attr, injectTID), m)
}

func (w *world) injectRaw(from netip.Addr, h wire.MADHeader, m message) {
	w.t.Helper()
	w.b.HandleMAD(w.now, from, addrB, 0xFFFF, m.Append(h.Append(nil)))
	checkInvariants(w.t, w.b.Agent)
}
