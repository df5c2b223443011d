package workload

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// callQP is the queue pair of one call with its resources. The first half of its memory is
// for sending, the second for receiving.
type callQP struct {
	end            *cmEndpoint
	qp             verbs.QP
	traffic.Queues // one completion queue
	buf            []byte
	mr             verbs.MR
	failed         bool
}

// newCallQP creates a queue pair and posts its receives before it is connected. A UD queue
// pair gets none: the peer only resolves its number (SIDR).
func (e *cmEndpoint) newCallQP(typ verbs.QPType) (*callQP, error) {
	p := &callQP{end: e, buf: make([]byte, 2*e.cfg.Bytes)}
	if err := p.open(typ); err != nil {
		return nil, err
	}
	if err := traffic.ToInit(p.qp, verbs.QPAttr{Port: 1, QKey: sidrQKey}); err != nil || typ == verbs.QPTypeUD {
		return p, err
	}
	// The ends take turns, therefore all receives can share one buffer.
	wrs := make([]verbs.RecvWR, e.cfg.Depth+1) // a call has at most Depth messages each way; one is spare
	for i := range wrs {
		wrs[i].SGL = []verbs.SGE{verbs.SGEOf(p.mr, e.cfg.Bytes, e.cfg.Bytes)}
	}
	_, err := p.qp.PostRecv(wrs)
	return p, err
}

// open creates the completion queue, registers the memory and creates the queue pair.
func (p *callQP) open(typ verbs.QPType) (err error) {
	dev, depth := p.end.nic.Device, p.end.cfg.Depth+1
	// The completion queue has more than enough room for depth sends and depth receives.
	if p.Queues, err = traffic.OpenQueues(dev, 1, 3*depth); err != nil {
		return err
	}
	if p.mr, err = p.PD.RegMR(verbs.MRInit{Buf: p.buf, Access: verbs.AccessLocalWrite}); err != nil {
		return err
	}
	p.qp, err = dev.CreateQP(verbs.QPInit{
		Type: typ, PD: p.PD, SendCQ: p.CQs[0], RecvCQ: p.CQs[0],
		Caps: verbs.QPCaps{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

// close destroys the queue pair and its resources.
func (p *callQP) close() error {
	p.end.live.remove(p.qp)
	return errors.Join(p.qp.Close(), p.mr.Close(), p.Queues.Close())
}

// messageLen is the length of message seq, drawn with the key of c: both ends compute the same.
func (e *cmEndpoint) messageLen(c *traffic.Content, seq int) int {
	return 1 + int(traffic.Derive(c.Key, seq-1)%uint64(e.cfg.Bytes))
}

// send sends message seq unsignaled: its completion would prove nothing, because a disconnect may
// flush the request after the peer has received the message. The peer's answer acknowledges the
// message and frees the buffer.
func (p *callQP) send(seq int) error {
	e := p.end
	n := e.messageLen(&e.out, seq)
	e.out.Fill(p.buf[:n], seq)
	now := e.proc.Now()
	e.log.requestPosted(now)
	e.flow.Posted++
	_, err := p.qp.PostSend([]verbs.SendWR{{WRID: uint64(seq), Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(p.mr, 0, n)}}})
	return err
}

// receive receives and checks message seq. It returns errCallBroken if the queue pair failed.
func (p *callQP) receive(seq int) error {
	e := p.end
	wc, err := p.waitCompletion()
	if err != nil {
		return err
	}
	e.noteProgress()
	now := e.proc.Now()
	if wc.Status != verbs.WCSuccess {
		p.fail(wc.Status)
		return errCallBroken
	}
	if wc.Opcode != verbs.WCOpRecv {
		e.violation(traffic.Completion, "an unexpected completion of %v", wc.Opcode)
	}
	want := e.messageLen(&e.in, seq)
	got := p.buf[e.cfg.Bytes:][:min(int(wc.ByteLen), e.cfg.Bytes)]
	e.log.checked += int64(len(got))
	switch {
	case int(wc.ByteLen) != want:
		e.violation(traffic.Contents, "message %d has %d bytes, not %d", seq, wc.ByteLen, want)
	case !e.in.Matches(got, seq):
		e.violation(traffic.Contents, "message %d: %s", seq, e.in.Describe(got, seq, e.cfg.Messages))
	}
	e.received++
	e.flow.Arrived++
	e.flow.Bytes += int64(want)
	e.log.messagesArrived(now, 1, want)
	e.log.sample(now)
	return nil
}

// fail records the first failure of the queue pair.
func (p *callQP) fail(status verbs.WCStatus) {
	if !p.failed {
		p.failed = true
		p.end.log.recordFailure(p.end.proc.Now(), p.end.peer, p.end.nic.Rail, status)
	}
}

// waitCompletion waits for a completion, and checks that the peer is still there.
func (p *callQP) waitCompletion() (wc verbs.WC, err error) {
	var one [1]verbs.WC
	const solicitedOnly = false
	armed := false
	for wait := p.end.tick(); ; wait = min(2*wait, maxTicks*p.end.tick()) {
		if n, err := p.CQs[0].Poll(one[:]); err != nil || n == 1 {
			return one[0], err
		}
		if !armed {
			if err := p.CQs[0].ReqNotify(solicitedOnly); err != nil {
				return wc, err
			}
			armed = true
			continue // completions before ReqNotify raise no event
		}
		_, err := p.Channel.Wait(wait)
		if err == nil {
			armed = false // an event disarms the queue
			continue
		}
		if !errors.Is(err, verbs.ErrTimeout) {
			return wc, err
		}
		message, err := p.end.pollControl()
		if err == nil && message != "" {
			err = fmt.Errorf("%s says %q in the middle of a call", hostOf(p.end.peer), message)
		}
		if err != nil {
			return wc, err
		}
	}
}

// pollFailed polls for a completion while none is expected. It reports whether there is one with an
// error: the queue pair has failed. A successful completion is a violation.
func (p *callQP) pollFailed() (bool, error) {
	var one [1]verbs.WC
	n, err := p.CQs[0].Poll(one[:])
	if n == 0 || err != nil {
		return false, err
	}
	if one[0].Status == verbs.WCSuccess {
		p.end.violation(traffic.Completion, "an unexpected completion of %v", one[0].Opcode)
		return false, nil
	}
	return true, nil
}
