package workload

import (
	"errors"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/verbs"
)

// phone is a queue pair for one call, with what it needs: the first half of its
// memory is sent from, the other received into.
type phone struct {
	end     *calls
	qp      verbs.QP
	pd      verbs.PD
	cq      verbs.CQ
	channel verbs.CompChannel
	buf     []byte
	mr      verbs.MR
	closers []io.Closer // in order of making
	failed  bool
}

// newPhone makes a queue pair that is ready to receive the messages of a call
// before it is connected: then no message comes too early. One for datagrams is
// to be looked up only.
func (e *calls) newPhone(typ verbs.QPType) (*phone, error) {
	p := &phone{end: e, buf: make([]byte, 2*e.cfg.Bytes)}
	if err := p.open(typ); err != nil {
		return nil, err
	}
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: lookupQKey}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if typ == verbs.QPTypeUD {
		return p, p.qp.Modify(attr, mask|verbs.QPAttrQKey)
	}
	if err := p.qp.Modify(attr, mask|verbs.QPAttrAccessFlags); err != nil {
		return nil, err
	}
	// Ends take turns, so that one place is enough for what is heard.
	wrs := make([]verbs.RecvWR, e.cfg.Depth+1)
	for i := range wrs {
		wrs[i].SGL = []verbs.SGE{verbs.SGEOf(p.mr, e.cfg.Bytes, e.cfg.Bytes)}
	}
	_, err := p.qp.PostRecv(wrs)
	return p, err
}

func (p *phone) open(typ verbs.QPType) (err error) {
	dev, depth := p.end.nic.Device, p.end.cfg.Depth+1
	if p.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if p.channel, err = dev.CreateCompChannel(); err != nil {
		return err
	}
	if p.cq, err = dev.CreateCQ(verbs.CQInit{Depth: 3 * depth, Channel: p.channel}); err != nil {
		return err
	}
	if p.mr, err = p.pd.RegMR(verbs.MRInit{Buf: p.buf, Access: verbs.AccessLocalWrite}); err != nil {
		return err
	}
	p.qp, err = dev.CreateQP(verbs.QPInit{
		Type: typ, PD: p.pd, SendCQ: p.cq, RecvCQ: p.cq,
		Caps: verbs.QPCaps{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	p.closers = []io.Closer{p.pd, p.channel, p.cq, p.mr, p.qp}
	return err
}

func (p *phone) close() error {
	p.end.live.remove(p.qp)
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i].Close())
	}
	return errors.Join(errs...)
}

// length is how long message seq is.
func (e *calls) length(c *content, seq int) int {
	return 1 + int(mix(c.key+uint64(seq)*golden)%uint64(e.cfg.Bytes))
}

// say sends a message. It asks for no completion: that of the last message may
// be cut off by the other end hanging up. The answer proves that the message
// came, and its place may be used again then.
func (p *phone) say(seq int) error {
	e := p.end
	n := e.length(&e.say, seq)
	e.say.fill(p.buf[:n], seq)
	now := e.rank.Proc.Now()
	e.log.posted(now)
	e.flow.Posted++
	_, err := p.qp.PostSend([]verbs.SendWR{{WRID: uint64(seq), Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(p.mr, 0, n)}}})
	return err
}

// listen receives a message and checks every byte.
func (p *phone) listen(seq int) error {
	e := p.end
	wc, err := p.complete()
	if err != nil {
		return err
	}
	e.moved()
	now := e.rank.Proc.Now()
	if wc.Status != verbs.WCSuccess {
		p.fail(wc.Status)
		return errBroken
	}
	if wc.Opcode != verbs.WCOpRecv {
		e.violation(Completion, "%v completed, which was not asked to", wc.Opcode)
	}
	want := e.length(&e.hear, seq)
	got := p.buf[e.cfg.Bytes:][:min(int(wc.ByteLen), e.cfg.Bytes)]
	e.log.checked += int64(len(got))
	switch {
	case int(wc.ByteLen) != want:
		e.violation(Contents, "message %d has %d bytes, not %d", seq, wc.ByteLen, want)
	case !e.hear.right(got, seq):
		e.violation(Contents, "message %d: %s", seq, e.hear.describe(got, seq, e.cfg.Messages))
	}
	e.heard++
	e.flow.Arrived++
	e.flow.Bytes += int64(want)
	e.log.arrived(now, 1, want)
	e.log.sample(now)
	return nil
}

func (p *phone) fail(status verbs.WCStatus) {
	if !p.failed {
		p.failed = true
		p.end.log.failed(p.end.rank.Proc.Now(), p.end.peer, p.end.nic.Rail, status)
	}
}

// complete waits for one completion, with an eye on the other end.
func (p *phone) complete() (wc verbs.WC, err error) {
	var one [1]verbs.WC
	armed := false
	for wait := p.end.tick(); ; wait = min(2*wait, maxTicks*p.end.tick()) {
		if n, err := p.cq.Poll(one[:]); err != nil || n == 1 {
			return one[0], err
		}
		if !armed {
			if err := p.cq.ReqNotify(false); err != nil {
				return wc, err
			}
			armed = true
			continue // what came before would raise no event
		}
		_, err := p.channel.Wait(wait)
		if err == nil {
			armed = false
			continue
		}
		if !errors.Is(err, verbs.ErrTimeout) {
			return wc, err
		}
		if err := p.end.peek(); err != nil {
			return wc, err
		}
	}
}

// broken reports whether the queue pair has failed while nothing was expected.
func (p *phone) broken() (bool, error) {
	var one [1]verbs.WC
	n, err := p.cq.Poll(one[:])
	if n == 0 || err != nil {
		return false, err
	}
	if one[0].Status == verbs.WCSuccess {
		p.end.violation(Completion, "a completion that nobody waits for: %v", one[0].Opcode)
		return false, nil
	}
	return true, nil
}

// peek is glance during a call: only bad news is expected then.
func (e *calls) peek() error {
	word, err := e.glance()
	if err == nil && word != "" {
		err = fmt.Errorf("%s says %q in the middle of a call", hostOf(e.peer), word)
	}
	return err
}
