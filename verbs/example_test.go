package verbs_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// provider stands for whatever the composing program links.
var provider verbs.Provider

// The whole of a minimal program: two reliable queue pairs of one device are
// connected to each other, and one sends the other a message. Between two hosts
// only the exchange of queue pair numbers and addresses would be added, which is
// what a CM does.
func Example() {
	dev, err := provider.Open("roce0")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close() // and with it everything made below
	if err := helloOver(dev); err != nil {
		log.Fatal(err)
	}
}

func helloOver(dev verbs.Context) error {
	// A protection domain, and in it memory that the device may reach.
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	buf := make([]byte, 4096)
	mr, err := pd.RegMR(verbs.MRInit{Buf: buf, Access: verbs.AccessLocalWrite})
	if err != nil {
		return err
	}

	// A completion queue that is waited for rather than polled in a loop.
	events, err := dev.CreateCompChannel()
	if err != nil {
		return err
	}
	cq, err := dev.CreateCQ(verbs.CQInit{Depth: 16, Channel: events})
	if err != nil {
		return err
	}

	// Two queue pairs, each told of the other.
	spec := verbs.QPInit{
		Type: verbs.QPTypeRC, PD: pd, SendCQ: cq, RecvCQ: cq,
		Caps: verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	from, err := dev.CreateQP(spec)
	if err != nil {
		return err
	}
	to, err := dev.CreateQP(spec)
	if err != nil {
		return err
	}
	self, err := dev.QueryGID(1, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(connect(from, to.QPN(), self.GID), connect(to, from.QPN(), self.GID)); err != nil {
		return err
	}

	// The receive goes first: a message that finds none is refused, and tried
	// again later.
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
		wc, err := next(cq, events)
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

// connect takes a reliable queue pair from RESET to RTS. Each step has its own
// attributes, and the mask says which of them count.
func connect(qp verbs.QP, peer verbs.QPN, at verbs.GID) error {
	attr := verbs.QPAttr{
		State: verbs.QPStateInit, Port: 1, Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead,
	}
	if err := qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: peer, RQPSN: 0,
		MaxDestRdAtomic: 1, MinRNRTimer: 12, // 0.64 ms
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: at, HopLimit: 64}},
	}
	if err := qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN|
		verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: 0, MaxRdAtomic: 1,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, // 67 ms, seven times; receivers may take for ever
	}
	return qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN|verbs.QPAttrMaxQPRdAtomic|
		verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry)
}

// next returns the completions that wait, or waits for some. The queue is polled
// once more after it is armed: what came before would raise no event.
func next(cq verbs.CQ, events verbs.CompChannel) ([]verbs.WC, error) {
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
