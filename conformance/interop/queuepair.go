package interop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// depth is the size of the queues, and maxReads the number of outstanding READs and
// atomics.
const (
	depth    = 64
	maxReads = 4
	qKey     = 0x1b0e4a11
)

// queuePair is a queue pair with its objects.
type queuePair struct {
	*endpoint
	pd        verbs.PD
	cq        verbs.CQ
	srq       verbs.SRQ
	qp        verbs.QP
	conn      verbs.Conn // set if the connection manager connected it
	to        verbs.UD   // destination of datagrams
	ah        verbs.AH
	next      uint64     // next WR ID
	unclaimed []verbs.WC // polled completions that were not awaited yet
}

// open makes a queue pair in INIT.
func (s *endpoint) open(service verbs.QPType, shared bool, inline int) (p *queuePair, err error) {
	p = &queuePair{endpoint: s, next: 1}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.pd, err = s.Device.AllocPD(); err != nil {
		return p, s.verbError("allocate a protection domain", err)
	}
	if p.cq, err = s.Device.CreateCQ(verbs.CQInit{Depth: 4 * depth}); err != nil {
		return p, s.verbError("create a completion queue", err)
	}
	init := verbs.QPInit{
		Type: service, PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: verbs.QPCaps{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: inline},
	}
	if shared {
		if p.srq, err = s.Device.CreateSRQ(verbs.SRQInit{PD: p.pd, MaxWR: depth, MaxSGE: 2}); err != nil {
			return p, s.verbError("create a shared receive queue", err)
		}
		init.SRQ, init.Caps.MaxRecvWR, init.Caps.MaxRecvSGE = p.srq, 0, 0
	}
	if p.qp, err = s.Device.CreateQP(init); err != nil {
		return p, s.verbError("create a queue pair", err)
	}
	attr := verbs.QPAttr{Port: 1, QKey: qKey, Access: s.access() &^ verbs.AccessLocalWrite}
	return p, s.verbError("open a queue pair", traffic.ToInit(p.qp, attr))
}

// close closes everything. An error means that an object is still in use.
func (p *queuePair) close() error {
	var errs []error
	shut := func(what string, isNil bool, c interface{ Close() error }) {
		if !isNil {
			errs = append(errs, p.verbError("close "+what, c.Close()))
		}
	}
	shut("a queue pair", p.qp == nil, p.qp)
	shut("an address handle", p.ah == nil, p.ah)
	shut("a shared receive queue", p.srq == nil, p.srq)
	shut("a completion queue", p.cq == nil, p.cq)
	shut("a protection domain", p.pd == nil, p.pd)
	return errors.Join(errs...)
}

// nextWRID returns the next WR ID.
func (p *queuePair) nextWRID() uint64 {
	p.next++
	return p.next - 1
}

// post posts requests, all signaled.
func (p *queuePair) post(wrs ...verbs.SendWR) error {
	for i := range wrs {
		wrs[i].Flags |= verbs.SendSignaled
		wrs[i].UD = p.to
	}
	n, err := p.qp.PostSend(wrs)
	if err == nil && n != len(wrs) {
		err = fmt.Errorf("%d of %d posted", n, len(wrs))
	}
	return p.verbError("post a request", err)
}

// postRecv posts a receive and returns its WR ID.
func (p *queuePair) postRecv(sgl []verbs.SGE) (uint64, error) {
	wr := verbs.RecvWR{WRID: p.nextWRID(), SGL: sgl}
	var n int
	var err error
	if p.srq != nil {
		n, err = p.srq.PostRecv([]verbs.RecvWR{wr})
	} else {
		n, err = p.qp.PostRecv([]verbs.RecvWR{wr})
	}
	if err == nil && n != 1 {
		err = errors.New("not posted")
	}
	return wr.WRID, p.verbError("post a receive", err)
}

// errNoCompletion means that a completion did not arrive in time.
var errNoCompletion = errors.New("no completion")

// awaitCompletion returns the completion of a work request.
func (p *queuePair) awaitCompletion(number uint64, timeout time.Duration) (wc verbs.WC, err error) {
	pause := 100 * time.Microsecond
	for until := time.Now().Add(timeout); ; {
		if i := slices.IndexFunc(p.unclaimed, func(wc verbs.WC) bool { return wc.WRID == number }); i >= 0 {
			wc = p.unclaimed[i]
			p.unclaimed = slices.Delete(p.unclaimed, i, i+1)
			return wc, nil
		}
		// Successful completions of other requests are kept; errors and unknown WR IDs
		// end the wait.
		if err := p.unexpectedError(); err != nil {
			return wc, err
		}
		n, err := p.poll()
		switch {
		case err != nil:
			return wc, err
		case n > 0:
			continue
		}
		if time.Now().After(until) {
			return wc, p.mismatch("%w of request %d within %v", errNoCompletion, number, timeout)
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
}

// unexpectedError returns an error if an unclaimed completion has an error or an unknown
// WR ID.
func (p *queuePair) unexpectedError() error {
	for i := range p.unclaimed {
		if wc := &p.unclaimed[i]; wc.Status != verbs.WCSuccess || wc.WRID == 0 || wc.WRID >= p.next {
			return p.mismatch("unexpected completion: %s", describe(wc))
		}
	}
	return nil
}

func (p *queuePair) poll() (int, error) {
	var wcs [16]verbs.WC
	n, err := p.cq.Poll(wcs[:])
	p.unclaimed = append(p.unclaimed, wcs[:n]...)
	return n, p.verbError("poll a completion queue", err)
}

// expectNoCompletions returns an error if there are unclaimed completions.
func (p *queuePair) expectNoCompletions() error {
	if _, err := p.poll(); err != nil {
		return err
	}
	if len(p.unclaimed) == 0 {
		return nil
	}
	all := make([]string, 0, len(p.unclaimed))
	for i := range p.unclaimed {
		all = append(all, describe(&p.unclaimed[i]))
	}
	return p.mismatch("unexpected completions: %s", strings.Join(all, "; "))
}

func describe(wc *verbs.WC) string {
	s := fmt.Sprintf("request %d: %v", wc.WRID, wc.Status)
	if wc.Status == verbs.WCSuccess {
		s += fmt.Sprintf(", %v, %d octets, flags %#x", wc.Opcode, wc.ByteLen, uint32(wc.Flags))
	}
	return s
}

// expectSent waits for the successful completion of a request.
func (p *queuePair) expectSent(number uint64, op verbs.WCOpcode) error {
	wc, err := p.awaitCompletion(number, p.timeout)
	if err != nil {
		return err
	}
	if wc.Status != verbs.WCSuccess || wc.Opcode != op || wc.QPN != p.qp.QPN() {
		return p.mismatch("%s, of queue pair %d; want a success of %v, of queue pair %d", describe(&wc), wc.QPN, op, p.qp.QPN())
	}
	return nil
}

// recvCompletion are the expected fields of the completion of a receive.
type recvCompletion struct {
	op    verbs.WCOpcode
	size  int
	flags verbs.WCFlags
	imm   uint32
	from  verbs.QPN // source QPN of datagrams
}

// expectRecv waits for the completion of a receive, and compares it with want.
func (p *queuePair) expectRecv(number uint64, want recvCompletion, timeout time.Duration) error {
	wc, err := p.awaitCompletion(number, timeout)
	if err != nil {
		return err
	}
	got := recvCompletion{op: wc.Opcode, size: int(wc.ByteLen), flags: wc.Flags & (verbs.WCWithImm | verbs.WCWithInv)}
	if wc.Flags&verbs.WCWithImm != 0 {
		got.imm = wc.Imm
	}
	if want.from != 0 {
		got.from = wc.SrcQP
	}
	if wc.Status != verbs.WCSuccess || got != want {
		return p.mismatch("the receive completed with %s (%+v); want %+v", describe(&wc), got, want)
	}
	return nil
}

// expectError waits for the completion of a request with one of these statuses.
func (p *queuePair) expectError(number uint64, timeout time.Duration, statuses ...verbs.WCStatus) error {
	wc, err := p.awaitCompletion(number, timeout)
	if err != nil {
		return err
	}
	if !slices.Contains(statuses, wc.Status) {
		return p.mismatch("%s; want %v", describe(&wc), statuses)
	}
	return nil
}
