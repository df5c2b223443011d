package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// serveChannel handles frames of the rank until its control channel closes. A CloseError (bye)
// means that the rank has called Close.
func (m *member) serveChannel() {
	defer m.disconnect()
	err := m.acceptJoin()
	if err == nil {
		m.conn.Limits = m.welcome().rankLimits()
		err = m.conn.Serve(m.handleFrame)
	}
	var bye *control.CloseError
	switch {
	case errors.As(err, &bye):
		m.handleBye(strings.ToValidUTF8(bye.Reason, "\uFFFD"))
		_, _ = io.Copy(io.Discard, m.file) // frames of the rank's goroutines that raced with Close
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		// the rank closed the channel
	case errors.Is(err, os.ErrDeadlineExceeded): // run sets the deadline when the rank has exited
	default:
		m.fail(Failed, err.Error())
	}
}

// acceptJoin waits for the rank's hello, sends the welcome, records that the rank has joined, and
// starts the send queue.
func (m *member) acceptJoin() error {
	var h hello
	if err := m.conn.ReadHello(m.protocol(), &h); err != nil {
		err = m.explainHello(err)
		if errors.Is(err, control.ErrProtocol) || errors.Is(err, control.ErrVersion) {
			m.conn.Close(err)
		}
		return err
	}
	// The welcome overtakes the send queue, which may hold messages of other ranks already.
	err := m.conn.SendHello(m.protocol(), m.welcome())
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("sent hello and did not read the welcome for %v", m.g.opts.HangTimeout)
	case err != nil:
		return io.EOF // the rank has disconnected
	}
	// Joined starts the heartbeats. While postEvent blocks, the rank does not count as silent.
	m.setHandlingFrame(true)
	m.g.mu.Lock()
	m.joined, m.isGoProgram = true, h.Go != ""
	m.g.mu.Unlock()
	m.goTask(func() { // sends queued frames until the rank disconnects or stops reading
		if errors.Is(m.conn.Run(), os.ErrDeadlineExceeded) {
			m.fail(Hung, fmt.Sprintf("did not read its control channel for %v", m.g.opts.HangTimeout))
		}
	})
	m.postEvent(Joined, h.Go)
	m.setHandlingFrame(false)
	return nil
}

// welcome returns the launcher's answer to the rank's hello.
func (m *member) welcome() *welcome {
	w := &welcome{
		Rank: m.spec.Rank, Size: m.g.size, Host: m.spec.Host,
		MaxMessage: m.g.opts.MaxMessage, MaxReport: m.g.opts.MaxReport, Job: m.spec.Job,
	}
	if m.spec.isProxy() {
		m.g.setProxyFields(w)
	}
	return w
}

func (m *member) isFrozen() bool {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.frozen
}

// handleFrame handles a frame of the rank after its hello. Serve has rejected kinds that are not in
// rankLimits.
func (m *member) handleFrame(f control.Frame) error {
	g := m.g
	m.setHandlingFrame(true)
	defer m.setHandlingFrame(false)
	switch f.Kind {
	case kindData:
		return m.forward(f)
	case kindBarrier:
		return m.enterBarrier(f.Num)
	case control.Pong:
		return m.handlePong(f.Num)
	case kindMark:
		m.postEvent(Marked, strings.ToValidUTF8(string(f.Body), "\uFFFD"))
	case kindSample:
		if !json.Valid(f.Body) {
			return fmt.Errorf("%w: sample is not JSON", control.ErrProtocol)
		}
		e := m.newEvent(Sampled)
		e.Sample = f.Body
		g.dispatcher.post(e)
	case kindReport:
		g.mu.Lock()
		defer g.mu.Unlock()
		if m.outcome.Report != nil {
			return fmt.Errorf("%w: a second report", control.ErrProtocol)
		}
		m.outcome.Report = append([]byte{}, f.Body...) // copied so that an empty report is not nil
	case control.Reply:
		return m.calls.Reply(f)
	case control.Stdout, control.Stderr, kindEvent: // of a proxy
		return m.handleRankEvent(f)
	}
	return nil
}

// handleBye handles a call of Close by the rank: it records the call, with the reason if the rank
// failed, informs the other ranks, and sends an acknowledgement. The rank waits for that, so /proc
// still has its memory usage.
func (m *member) handleBye(reason string) {
	peak, _ := readPeakRSS(m.proc.pid)
	m.g.mu.Lock()
	m.byeReceived, m.byeReason = true, reason
	m.outcome.MaxRSS = max(m.outcome.MaxRSS, peak)
	m.g.mu.Unlock()
	m.disconnect()
	_ = m.conn.QueueNow(control.Frame{Kind: control.Close})
	m.conn.CloseQueue()
}

// forward sends a message of this rank, the sender, to rank f.Num, the receiver. While the queue of
// frames to the receiver or its host is full, it blocks, and so the sender's channel is not read
// (backpressure).
func (m *member) forward(f control.Frame) error {
	if f.Num >= uint64(m.g.size) {
		return fmt.Errorf("%w: message to rank %d of %d", control.ErrProtocol, f.Num, m.g.size)
	}
	// If the receiver has ended, the message is lost, and the sender gets a kindRankEnded frame.
	if to, err := m.g.member(int(f.Num)); err == nil {
		to.deliver(m.spec.Rank, f.Body)
	} else {
		m.g.proxy.send(m.spec.Rank, int(f.Num), f.Body)
	}
	return nil
}

// deliver queues a message for this rank. It blocks while the queue is full.
func (m *member) deliver(from int, msg []byte) {
	_ = m.conn.Queue(control.Frame{Kind: kindData, Num: uint64(from), Body: msg}) // fails if the rank has ended
}

// enterBarrier records that the rank has entered barrier n.
func (m *member) enterBarrier(n uint64) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if n != m.g.barriersDone+1 || m.barriersEntered == n {
		return fmt.Errorf("%w: entered barrier %d after barrier %d; barrier %d was the last to complete",
			control.ErrProtocol, n, m.barriersEntered, m.g.barriersDone)
	}
	m.barriersEntered = n
	m.g.releaseBarrier()
	return nil
}

// releaseBarrier completes the barrier if all connected ranks of this host have entered it, and those of
// other hosts. The caller holds the lock.
func (g *Group) releaseBarrier() {
	entered := 0
	for _, m := range g.members {
		if m.disconnected {
			continue
		}
		if m.barriersEntered <= g.barriersDone {
			return
		}
		entered++
	}
	switch {
	case entered == 0 || g.barrierWaits:
	case g.proxy != nil:
		g.barrierWaits = true
		go g.proxy.enterBarrier()
	default:
		g.completeBarrier()
	}
}

// completeBarrier informs the ranks of this host that all have entered the barrier. The caller holds
// the lock.
func (g *Group) completeBarrier() {
	g.barriersDone++
	for _, m := range g.members {
		if !m.disconnected {
			_ = m.conn.QueueNow(control.Frame{Kind: kindBarrierDone, Num: g.barriersDone})
		}
	}
}

// disconnect informs the other ranks that this rank has ended, after all its messages have been
// forwarded. If it has called Close (a bye), its send queue stays open for the acknowledgement.
func (m *member) disconnect() {
	g := m.g
	g.mu.Lock()
	if !m.byeReceived {
		m.conn.CloseQueue()
	}
	first := !m.disconnected
	if first {
		m.disconnected, m.heartbeat.disconnectedAt = true, time.Now()
		m.calls.Close()
		g.announceEnd(m.spec.Rank)
		g.releaseBarrier()
	}
	g.mu.Unlock()
	if first && g.proxy != nil {
		g.proxy.announceEnd(m.spec.Rank)
	}
}

// announceEnd informs the ranks of this host that a rank has ended. The caller holds the lock.
func (g *Group) announceEnd(rank int) {
	for _, m := range g.members {
		if m.spec.Rank != rank {
			_ = m.conn.QueueNow(control.Frame{Kind: kindRankEnded, Num: uint64(rank)})
		}
	}
}
