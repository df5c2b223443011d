package dgiwarp

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// udSender is the state of the sending side of a UD queue pair.
type udSender struct {
	msn     uint32   // of the next Send
	records []uint32 // MSNs of Write-Records
	// recordsSince is the number of Write-Records since the last Send. The document leaves open
	// whether the MSNs of Sends count them.
	recordsSince uint32
	targets      uint64 // octets of the peer's memory that requests have used as targets so far
}

// udRequest is a posted request, whose packets the peer must get.
type udRequest struct {
	model.DGRequest
	end *udEnd
	to  *peer
}

// udpPayload returns the largest UDP payload of the link.
func (h *host) udpPayload() int { return h.maxSinglePacketSend() + sendOverhead }

// playRequests posts requests of all kinds, of lengths at the limits of a packet.
func playRequests(d *udDialogue, r *rand.Rand) {
	d.postRequests(r, verbs.OpSend, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm)
}

// playSendRequests posts Sends.
func playSendRequests(d *udDialogue, r *rand.Rand) { d.postRequests(r, verbs.OpSend) }

// postRequests posts a few requests of these kinds.
func (d *udDialogue) postRequests(r *rand.Rand, ops ...verbs.WROpcode) {
	e := rig.Pick(r, d.ends...)
	var wrs []verbs.SendWR
	for i := range 1 + r.IntN(4) {
		if i == 0 || d.Virtual { // a real network may change the order of messages
			wrs = append(wrs, d.newRequest(r, e, rig.Pick(r, ops...)))
		}
	}
	if e.model.Failed {
		return
	}
	d.PostSend(e.qp, wrs...)
}

// newRequest draws a request to one of the peers, of any length, but often an empty or short one,
// or one near the limit of one to three packets. Unless the queue pair has failed, it adds the
// request to the expected ones, and its completion if it is signaled.
func (d *udDialogue) newRequest(r *rand.Rand, e *udEnd, op verbs.WROpcode) verbs.SendWR {
	d.nextID++
	to := rig.Pick(r, e.sources...)
	req := udRequest{end: e, to: to, DGRequest: model.DGRequest{
		Op: op, Solicited: r.IntN(4) == 0, Immediate: r.Uint32(),
	}}
	fits := req.MaxPayload(d.udpPayload())
	n := rig.Pick(r, 0, 1, 2, 3, r.IntN(64), fits-1, fits, fits+1, 2*fits, 2*fits+1, 3*fits-1, r.IntN(udMemory))
	wr := to.wr(d.nextID, req.Op, 0, 0)
	off := r.IntN(udMemory - n + 1)
	wr.SGL = e.source.SGL(off, n)
	if r.IntN(3) == 0 {
		k := r.IntN(n + 1)
		wr.SGL = []verbs.SGE{e.source.SGE(off, k), e.source.SGE(off+k, n-k)}
	}
	req.Payload = slices.Clone(e.source.Buf[off:][:n])
	wr.Remote.Addr += e.sender.targets
	e.sender.targets += uint64(n + 1) // the next request goes elsewhere
	req.Target, wr.Imm = iwarp.At(uint32(wr.Remote.RKey), wr.Remote.Addr), req.Immediate
	if req.Solicited {
		wr.Flags |= verbs.SendSolicited
	}
	if e.model.Failed {
		return wr
	}
	if r.IntN(4) == 0 {
		wr.Flags &^= verbs.SendSignaled
	} else {
		wc := verbs.WC{WRID: wr.WRID, Opcode: verbs.WCOpRDMAWrite, QPN: e.qp.QPN()}
		if req.Op == verbs.OpSend {
			wc.Opcode = verbs.WCOpSend
		}
		d.expected.sends[e] = append(d.expected.sends[e], wc)
	}
	d.expected.requests = append(d.expected.requests, req)
	return wr
}

// playRefused posts a request that the device must refuse: it has no packets and no completion.
func playRefused(d *udDialogue, r *rand.Rand) {
	e := rig.Pick(r, d.ends...)
	wr := e.sources[0].wr(d.nextID, verbs.OpSend, 0, 8)
	wr.SGL = e.source.SGL(0, 8)
	wr.Opcode = rig.Pick(r, verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpAtomicCmpAndSwp, verbs.OpSendInv)
	wr.InvalidateRKey = peerSTag
	_, err := e.qp.PostSend([]verbs.SendWR{wr})
	d.MustFail(wr.Opcode.String()+" on UD", err, nil)
}

// compareMessages compares the packets of the device with those of the posted requests.
func (d *udDialogue) compareMessages(got []arrival) {
	if !d.Virtual { // a real network may reorder the packets of the one request
		slices.SortStableFunc(got, func(a, b arrival) int { return cmp.Compare(offsetOf(a), offsetOf(b)) })
	}
	for _, req := range d.expected.requests {
		d.Check(len(got) > 0, fmt.Sprintf("%v of %d octets", req.Op, len(req.Payload)), "nothing")
		got = got[d.compareMessage(req, got):]
	}
	if len(got) > 0 {
		d.Fail("no more packets", "%v", got[0].Packet)
	}
}

// compareMessage compares the first packets of got with those of a request, and returns how many
// these are. The device chooses the length of segments and the MSNs of Write-Records, and whether
// these count in the MSNs of Sends.
func (d *udDialogue) compareMessage(req udRequest, got []arrival) int {
	maxPayload := req.MaxPayload(d.udpPayload())
	sender := &req.end.sender
	switch req.Op {
	case verbs.OpRDMAWriteImm:
		d.Check(got[0].Record != nil, "a Write-Record", "%v", got[0].Packet)
		req.MSN = *got[0].Record.MSN
		d.Check(!slices.Contains(sender.records, req.MSN), "a Write-Record with a number of its own", "%v", got[0].Packet)
		sender.records = append(sender.records, req.MSN)
		sender.recordsSince++
	case verbs.OpSend:
		req.MSN = sender.msn
		if iwarp.Val(got[0].Segment.DDP.MSN) == sender.msn+sender.recordsSince {
			req.MSN += sender.recordsSince
		}
		sender.msn, sender.recordsSince = req.MSN+1, 0
	}
	n := len(got[0].Segment.Payload)
	if len(req.Payload) <= maxPayload {
		n = len(req.Payload) // a message that fits into one packet must not be divided
	}
	d.Check(n <= maxPayload && (n > 0 || len(req.Payload) == 0), fmt.Sprintf("segments of 1 to %d octets", maxPayload), "%v", got[0].Packet)
	want := req.Packets(n)
	for i, w := range want {
		d.Check(i < len(got), w.String(), "nothing")
		d.checkPacket(req.to.fromDevice(w).WithKey(req.to.key), got[i])
		d.checkRoute(req.to, got[i])
	}
	return len(want)
}

// offsetOf returns the offset of a segment: its TO or MO.
func offsetOf(a arrival) uint64 {
	if s := a.Segment; s != nil && s.DDP.TO != nil {
		return *s.DDP.TO
	}
	return uint64(iwarp.Val(iwarp.Val(a.Segment).DDP.MO))
}
