package roce

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// noAPR is returned in place of the status of an APR if the device sends none.
const noAPR = -1

// aprInvalidLID is the status of an APR that names an invalid LID.
const aprInvalidLID = 7

var alternatePathCases = overCM.Cases([]conformance.Case{{
	ID: "cm/lap/lids-ignored", Cite: annexA17("CA17-36, CA17-37", "cm/14", "cm/15"),
	Title:   "The LIDs in a LAP do not change its answer, and no APR names an invalid LID",
	Sends:   "on one connection each, LAPs whose LIDs are 0xffff, 0, multicast and random; then a SEND",
	Expects: "no answer, or the same answer to all, not with status 7; and a connection that delivers",
	Defects: []string{"cm.IgnoreREQ"}, Run: onListener(func(p *Port, l verbs.Listener) {
		var first int
		for n, lids := range [][2]uint16{{0xffff, 0xffff}, {0, 0}, {1, 2}, {0xc000, 0xfffe}, {uint16(p.Rand.Uint32()), uint16(p.Rand.Uint32())}} {
			k := p.cmEstablish(l, uint32(n))
			status := k.loadAlternatePath(lids[0], lids[1])
			if n == 0 {
				first = status
			}
			p.Check(status != aprInvalidLID, "an APR with another status than an invalid LID", "status %d", status)
			p.Check(status == first, "the same answer whatever the LIDs are", "status %d, and %d for other LIDs (%d is none)", status, first, noAPR)
			k.expectDelivery(uint32(n))
		}
	}),
}})

// loadAlternatePath sends a LAP for a path between the same addresses, with these LIDs. It returns
// the status of the APR, or noAPR.
func (k *cmSession) loadAlternatePath(local, remote uint16) int {
	const responseTimeout = 18
	lap := ib.LAP{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, Rest: make([]byte, 224)}
	field := func(offset int) []byte { return lap.Rest[offset-8:] } // Rest follows the two IDs
	binary.BigEndian.PutUint32(field(12), uint32(k.acceptor.conn.QP.QPN())<<8|responseTimeout<<3)
	binary.BigEndian.PutUint16(field(20), local)
	binary.BigEndian.PutUint16(field(22), remote)
	gid := func(a netip.Addr) []byte { b := a.As16(); return b[:] }
	copy(field(24), gid(k.acceptor.conn.Peer))
	copy(field(40), gid(k.acceptor.conn.deviceAddr))
	field(60)[0], field(62)[0], field(63)[0] = 64, 0, timeout67ms<<3 // hop limit, service level, ACK timeout
	transactionID := uint64(k.peerID) | 2<<32                        // another than that of the REQ
	k.acceptor.conn.SendPacket(ib.CM(transactionID, lap))
	status := noAPR
	for _, pkt := range k.acceptor.conn.Drain(time.Second) {
		if _, m, err := pkt.CM(); err == nil {
			if apr, ok := m.(ib.APR); ok {
				status = int(*apr.Status)
			}
		}
	}
	return status
}
