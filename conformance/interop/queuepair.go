package interop

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// depth is the size of the queues, and maxReads the number of outstanding READs and atomics.
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

// open creates a queue pair in INIT, with an SRQ if withSRQ is set, and up to maxInline octets of
// inline data. An error ends the case; the caller must then call close, which closes the objects
// that were created.
func (p *queuePair) open(service verbs.QPType, withSRQ bool, maxInline int) {
	p.pd = rig.Result(p.Device.AllocPD())(p, "allocate a protection domain")
	p.cq = rig.Result(p.Device.CreateCQ(verbs.CQInit{Depth: 4 * depth}))(p, "create a completion queue")
	init := verbs.QPInit{
		Type: service, PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: verbs.QPCaps{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: maxInline},
	}
	if withSRQ {
		p.srq = rig.Result(p.Device.CreateSRQ(verbs.SRQInit{PD: p.pd, MaxWR: depth, MaxSGE: 2}))(p, "create a shared receive queue")
		init.SRQ, init.Caps.MaxRecvWR, init.Caps.MaxRecvSGE = p.srq, 0, 0
	}
	p.qp = rig.Result(p.Device.CreateQP(init))(p, "create a queue pair")
	attr := verbs.QPAttr{Port: 1, QKey: qKey, Access: p.access() &^ verbs.AccessLocalWrite} // a QP has remote rights only
	p.Must("open a queue pair", traffic.ToInit(p.qp, attr))
}

// close closes the queue pair and the objects that were made with it.
func (p *queuePair) close() error {
	var errs []error
	closeObject := func(name string, object io.Closer) {
		if object != nil {
			errs = append(errs, p.verbError("close "+name, object.Close()))
		}
	}
	closeObject("a queue pair", p.qp)
	closeObject("an address handle", p.ah)
	closeObject("a shared receive queue", p.srq)
	closeObject("a completion queue", p.cq)
	closeObject("a protection domain", p.pd)
	return errors.Join(errs...)
}

// nextWRID returns the next WR ID.
func (p *queuePair) nextWRID() uint64 {
	p.next++
	return p.next - 1
}

// post posts requests and makes them signaled. On a UD queue pair they go to the peer that setPeer
// has set.
func (p *queuePair) post(wrs ...verbs.SendWR) {
	for i := range wrs {
		wrs[i].Flags |= verbs.SendSignaled
		wrs[i].UD = p.to
	}
	n, err := p.qp.PostSend(wrs)
	if err == nil && n != len(wrs) {
		err = fmt.Errorf("%d of %d posted", n, len(wrs))
	}
	p.Must("post a request", err)
}

// execute posts a request and waits for its completion.
func (p *queuePair) execute(wr verbs.SendWR) {
	wr.WRID = p.nextWRID()
	p.post(wr)
	p.expectSent(wr)
}

// postRecv posts a receive and returns its WR ID.
func (p *queuePair) postRecv(sgl []verbs.SGE) uint64 {
	wr := verbs.RecvWR{WRID: p.nextWRID(), SGL: sgl}
	postTo := p.qp.PostRecv
	if p.srq != nil {
		postTo = p.srq.PostRecv
	}
	n, err := postTo([]verbs.RecvWR{wr})
	if err == nil && n != 1 {
		err = errors.New("not posted")
	}
	p.Must("post a receive", err)
	return wr.WRID
}

// ErrNoCompletion means that a completion did not arrive in time.
var ErrNoCompletion = errors.New("no completion")

// awaitCompletion returns the completion of a work request, also one in error, and keeps successful
// ones of others in p.unclaimed. It ends the case if another request fails, or at the timeout.
func (p *queuePair) awaitCompletion(wrID uint64, timeout time.Duration) verbs.WC {
	pause := 100 * time.Microsecond
	for until := time.Now().Add(timeout); ; {
		if i := slices.IndexFunc(p.unclaimed, func(wc verbs.WC) bool { return wc.WRID == wrID }); i >= 0 {
			wc := p.unclaimed[i]
			p.unclaimed = slices.Delete(p.unclaimed, i, i+1)
			return wc
		}
		// Errors, and WR IDs other than the assigned 1 to p.next-1, end the case.
		for i := range p.unclaimed {
			if wc := &p.unclaimed[i]; wc.Status != verbs.WCSuccess || wc.WRID == 0 || wc.WRID >= p.next {
				p.fail("unexpected completion: %s", rig.Describe(wc))
			}
		}
		n, err := p.poll()
		must(err)
		if n > 0 {
			continue
		}
		if time.Now().After(until) {
			p.fail("%w of request %d within %v", ErrNoCompletion, wrID, timeout)
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
}

// poll appends new completions to p.unclaimed, for awaitCompletion, and returns how many are new.
func (p *queuePair) poll() (int, error) {
	var wcs [16]verbs.WC
	n, err := p.cq.Poll(wcs[:])
	p.unclaimed = append(p.unclaimed, wcs[:n]...)
	return n, p.verbError("poll a completion queue", err)
}

// checkNoCompletions returns an error if completions exist that awaitCompletion did not return.
func (p *queuePair) checkNoCompletions() error {
	if _, err := p.poll(); err != nil || len(p.unclaimed) == 0 {
		return err
	}
	all := make([]string, 0, len(p.unclaimed))
	for i := range p.unclaimed {
		all = append(all, rig.Describe(&p.unclaimed[i]))
	}
	return p.mismatch("unexpected completions: %s", strings.Join(all, "; "))
}

// completionOpcodes are the opcodes in the completions of requests.
var completionOpcodes = map[verbs.WROpcode]verbs.WCOpcode{
	verbs.OpSend: verbs.WCOpSend, verbs.OpSendImm: verbs.WCOpSend, verbs.OpSendInv: verbs.WCOpSend,
	verbs.OpRDMAWrite: verbs.WCOpRDMAWrite, verbs.OpRDMAWriteImm: verbs.WCOpRDMAWrite, verbs.OpRDMARead: verbs.WCOpRDMARead,
	verbs.OpAtomicCmpAndSwp: verbs.WCOpCompSwap, verbs.OpAtomicFetchAdd: verbs.WCOpFetchAdd, verbs.OpAtomicWrite: verbs.WCOpAtomicWrite,
	verbs.OpFlush: verbs.WCOpFlush, verbs.OpBindMW: verbs.WCOpBindMW, verbs.OpLocalInv: verbs.WCOpLocalInv,
}

// expectSent waits for the successful completion of a request.
func (p *queuePair) expectSent(wr verbs.SendWR) {
	wc, op := p.awaitCompletion(wr.WRID, p.timeout), completionOpcodes[wr.Opcode]
	if wc.Status != verbs.WCSuccess || wc.Opcode != op || wc.QPN != p.qp.QPN() {
		p.fail("%s, of queue pair %d; want a success of %v, of queue pair %d", rig.Describe(&wc), wc.QPN, op, p.qp.QPN())
	}
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
func (p *queuePair) expectRecv(wrID uint64, want recvCompletion, timeout time.Duration) {
	wc := p.awaitCompletion(wrID, timeout)
	got := recvCompletion{op: wc.Opcode, size: int(wc.ByteLen), flags: wc.Flags & (verbs.WCWithImm | verbs.WCWithInv)}
	if wc.Flags&verbs.WCWithImm != 0 {
		got.imm = wc.Imm
	}
	if want.from != 0 {
		got.from = wc.SrcQP
	}
	if wc.Status != verbs.WCSuccess || got != want {
		p.fail("the receive completed with %s (%+v); want %+v", rig.Describe(&wc), got, want)
	}
}

// expectError waits for the completion of a request with one of these statuses.
func (p *queuePair) expectError(wrID uint64, timeout time.Duration, statuses ...verbs.WCStatus) {
	if wc := p.awaitCompletion(wrID, timeout); !slices.Contains(statuses, wc.Status) {
		p.fail("%s; want %v", rig.Describe(&wc), statuses)
	}
}
