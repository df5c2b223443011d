package verbs_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// provider is one of the providers that a program links.
var provider verbs.Provider

// A minimal program: it connects two RC queue pairs of one device and sends a message
// from one to the other. Between two hosts, a CM would exchange QPNs and addresses.
func Example() {
	dev, err := provider.Open("roce0")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close() // also closes all objects created from dev
	if err := sendHello(dev); err != nil {
		log.Fatal(err)
	}
}

func sendHello(dev verbs.Context) error {
	// A protection domain with registered memory.
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	buf := make([]byte, 4096)
	mr, err := pd.RegMR(verbs.MRInit{Buf: buf, Access: verbs.AccessLocalWrite})
	if err != nil {
		return err
	}

	// A completion queue with a channel for completion events.
	events, err := dev.CreateCompChannel()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(verbs.CQInit{Depth: 16, Channel: events})
	if err != nil {
		return err
	}

	// Two connected queue pairs.
	qpInit := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: pd, SendCQ: cq, RecvCQ: cq,
		Caps: verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	from, err := dev.CreateQP(qpInit)
	if err != nil {
		return err
	}
	to, err := dev.CreateQP(qpInit)
	if err != nil {
		return err
	}
	local, err := dev.QueryGID(1, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(connect(from, to.QPN(), local.GID), connect(to, from.QPN(), local.GID)); err != nil {
		return err
	}

	// Post the receive first: without it the responder returns an RNR NAK, and the
	// requester retries later.
	recv := verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{verbs.SGEOf(mr, 2048, 2048)}}
	if _, err := to.PostRecv([]verbs.RecvWR{recv}); err != nil {
		return err
	}
	n := copy(buf, "hello")
	send := verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(mr, 0, n)}}
	if _, err := from.PostSend([]verbs.SendWR{send}); err != nil {
		return err
	}

	// Two completions: the sender's and the receiver's.
	for done := 0; done < 2; {
		wc, err := waitCompletions(cq, events)
		if err != nil {
			return err
		}
		for _, c := range wc {
			if c.Status != verbs.WCSuccess {
				return fmt.Errorf("work request %d: %v", c.WRID, c.Status)
			}
			if c.Opcode == verbs.WCOpRecv {
				fmt.Printf("received %q\n", buf[2048:2048+c.ByteLen])
			}
			done++
		}
	}
	return nil
}

// connect moves an RC queue pair from RESET to RTS. The mask of each transition
// selects the attributes to set.
func connect(qp verbs.QP, peer verbs.QPN, peerGID verbs.GID) error {
	attr := verbs.QPAttr{
		State: verbs.QPStateInit, Port: 1, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead,
	}
	if err := qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: peer, RQPSN: 0,
		MaxDestRdAtomic: 1, MinRNRTimer: 12, // 0.64 ms
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: peerGID, HopLimit: 64}},
	}
	if err := qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN|
		verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: 0, MaxRdAtomic: 1,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, // 67 ms, 7 retries; RNR retries without limit
	}
	return qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN|verbs.QPAttrMaxQPRdAtomic|
		verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry)
}

// waitCompletions polls, and waits for an event if the queue is empty. It polls again
// after ReqNotify because earlier completions raise no event.
func waitCompletions(cq verbs.CQ, events verbs.CompChannel) ([]verbs.WC, error) {
	wc := make([]verbs.WC, 16)
	if n, err := cq.Poll(wc); n > 0 || err != nil {
		return wc[:n], err
	}
	if err := cq.ReqNotify(false); err != nil {
		return nil, err
	}
	if n, err := cq.Poll(wc); n > 0 || err != nil {
		return wc[:n], err
	}
	if _, err := events.Wait(time.Second); err != nil {
		return nil, err
	}
	n, err := cq.Poll(wc)
	return wc[:n], err
}
