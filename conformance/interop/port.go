package interop

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// depth is how many requests and receives a queue pair has room for, and readers how
// many reads and atomics may be under way.
const (
	depth   = 64
	readers = 4
	qKey    = 0x1b0e4a11
)

// port is a queue pair and all that belongs to it.
type port struct {
	*side
	pd    verbs.PD
	cq    verbs.CQ
	srq   verbs.SRQ
	qp    verbs.QP
	conn  verbs.Conn // if the connection manager made it
	to    verbs.UD   // where datagrams go
	ah    verbs.AH
	next  uint64     // number of the next work request
	early []verbs.WC // completions that nobody has asked for yet
}

// open makes a queue pair in INIT.
func (s *side) open(service verbs.QPType, shared bool, inline int) (p *port, err error) {
	p = &port{side: s, next: 1}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.pd, err = s.Device.AllocPD(); err != nil {
		return p, s.fault("allocate a protection domain", err)
	}
	if p.cq, err = s.Device.CreateCQ(verbs.CQInit{Depth: 4 * depth}); err != nil {
		return p, s.fault("create a completion queue", err)
	}
	init := verbs.QPInit{
		Type: service, PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: verbs.QPCaps{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: inline},
	}
	if shared {
		if p.srq, err = s.Device.CreateSRQ(verbs.SRQInit{PD: p.pd, MaxWR: depth, MaxSGE: 2}); err != nil {
			return p, s.fault("create a shared receive queue", err)
		}
		init.SRQ, init.Caps.MaxRecvWR, init.Caps.MaxRecvSGE = p.srq, 0, 0
	}
	if p.qp, err = s.Device.CreateQP(init); err != nil {
		return p, s.fault("create a queue pair", err)
	}
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey, Access: s.rights() &^ verbs.AccessLocalWrite}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	if service == verbs.QPTypeUD {
		mask ^= verbs.QPAttrAccessFlags ^ verbs.QPAttrQKey
	}
	return p, s.fault("put a queue pair into INIT", p.qp.Modify(attr, mask))
}

// close closes what was opened. What cannot be closed is in use by something that was
// left over.
func (p *port) close() error {
	var errs []error
	shut := func(what string, isNil bool, c interface{ Close() error }) {
		if !isNil {
			errs = append(errs, p.fault("close "+what, c.Close()))
		}
	}
	shut("a queue pair", p.qp == nil, p.qp)
	shut("an address handle", p.ah == nil, p.ah)
	shut("a shared receive queue", p.srq == nil, p.srq)
	shut("a completion queue", p.cq == nil, p.cq)
	shut("a protection domain", p.pd == nil, p.pd)
	return errors.Join(errs...)
}

// number is one for a work request.
func (p *port) number() uint64 {
	p.next++
	return p.next - 1
}

// post posts requests. Each is signaled.
func (p *port) post(wrs ...verbs.SendWR) error {
	for i := range wrs {
		wrs[i].Flags |= verbs.SendSignaled
		wrs[i].UD = p.to
	}
	n, err := p.qp.PostSend(wrs)
	if err == nil && n != len(wrs) {
		err = fmt.Errorf("%d of %d were taken", n, len(wrs))
	}
	return p.fault("post a request", err)
}

// receive posts a receive and returns its number.
func (p *port) receive(sgl []verbs.SGE) (uint64, error) {
	wr := verbs.RecvWR{WRID: p.number(), SGL: sgl}
	var n int
	var err error
	if p.srq != nil {
		n, err = p.srq.PostRecv([]verbs.RecvWR{wr})
	} else {
		n, err = p.qp.PostRecv([]verbs.RecvWR{wr})
	}
	if err == nil && n != 1 {
		err = errors.New("it was not taken")
	}
	return wr.WRID, p.fault("post a receive", err)
}

// errSilent says that a completion did not come.
var errSilent = errors.New("no completion")

// await returns the completion of a work request.
func (p *port) await(number uint64, patience time.Duration) (wc verbs.WC, err error) {
	pause := 100 * time.Microsecond
	for until := time.Now().Add(patience); ; {
		if i := slices.IndexFunc(p.early, func(wc verbs.WC) bool { return wc.WRID == number }); i >= 0 {
			wc = p.early[i]
			p.early = slices.Delete(p.early, i, i+1)
			return wc, nil
		}
		// One that is not waited for may be of another request that is under way; one of
		// an unknown number, or a failure, is not.
		if err := p.broken(); err != nil {
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
			return wc, p.differs("%w of request %d within %v", errSilent, number, patience)
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
}

// broken is the failure among the completions that nobody has asked for.
func (p *port) broken() error {
	for i := range p.early {
		if wc := &p.early[i]; wc.Status != verbs.WCSuccess || wc.WRID == 0 || wc.WRID >= p.next {
			return p.differs("a completion that should not be: %s", describe(wc))
		}
	}
	return nil
}

func (p *port) poll() (int, error) {
	var wcs [16]verbs.WC
	n, err := p.cq.Poll(wcs[:])
	p.early = append(p.early, wcs[:n]...)
	return n, p.fault("poll a completion queue", err)
}

// nothing says that there are completions that nobody expected.
func (p *port) nothing() error {
	if _, err := p.poll(); err != nil {
		return err
	}
	if len(p.early) == 0 {
		return nil
	}
	all := make([]string, 0, len(p.early))
	for i := range p.early {
		all = append(all, describe(&p.early[i]))
	}
	return p.differs("completions that should not be: %s", strings.Join(all, "; "))
}

func describe(wc *verbs.WC) string {
	s := fmt.Sprintf("request %d: %v", wc.WRID, wc.Status)
	if wc.Status == verbs.WCSuccess {
		s += fmt.Sprintf(", %v, %d octets, flags %#x", wc.Opcode, wc.ByteLen, uint32(wc.Flags))
	}
	return s
}

// sent waits for the completion of a request, which has to be a success.
func (p *port) sent(number uint64, op verbs.WCOpcode) error {
	wc, err := p.await(number, p.patience)
	if err != nil {
		return err
	}
	if wc.Status != verbs.WCSuccess || wc.Opcode != op || wc.QPN != p.qp.QPN() {
		return p.differs("%s, of queue pair %d; want a success of %v, of queue pair %d", describe(&wc), wc.QPN, op, p.qp.QPN())
	}
	return nil
}

// arrival is what the completion of a receive has to say.
type arrival struct {
	op    verbs.WCOpcode
	size  int
	flags verbs.WCFlags
	imm   uint32
	from  verbs.QPN // of datagrams
}

// arrived waits for a message.
func (p *port) arrived(number uint64, want arrival, patience time.Duration) error {
	wc, err := p.await(number, patience)
	if err != nil {
		return err
	}
	got := arrival{op: wc.Opcode, size: int(wc.ByteLen), flags: wc.Flags & (verbs.WCWithImm | verbs.WCWithInv)}
	if wc.Flags&verbs.WCWithImm != 0 {
		got.imm = wc.Imm
	}
	if want.from != 0 {
		got.from = wc.SrcQP
	}
	if wc.Status != verbs.WCSuccess || got != want {
		return p.differs("the message is %s (%+v); want %+v", describe(&wc), got, want)
	}
	return nil
}

// refused waits for a failure of a certain kind, and for nothing else.
func (p *port) refused(number uint64, patience time.Duration, statuses ...verbs.WCStatus) error {
	wc, err := p.await(number, patience)
	if err != nil {
		return err
	}
	if !slices.Contains(statuses, wc.Status) {
		return p.differs("%s; want %v", describe(&wc), statuses)
	}
	return nil
}
