package launch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// serveChannel handles frames of the rank until its control channel closes. Time
// spent blocked in a queue or OnEvent does not count as silence of the rank.
func (m *member) serveChannel() {
	defer m.disconnect()
	r := bufio.NewReaderSize(m.channel, 64<<10)
	err := m.acceptJoin(r)
	if err == nil {
		err = m.readFrames(r)
	}
	if !isDisconnect(err) {
		m.fail(Failed, err.Error())
	}
}

// isDisconnect reports whether err only means that the rank closed the channel.
func isDisconnect(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)
}

// acceptJoin waits for the rank's hello and sends the welcome.
func (m *member) acceptJoin(r io.Reader) error {
	hello, err := control.ReadHello(r)
	if err != nil {
		if errors.Is(err, control.ErrProtocol) {
			reject := control.Frame{Kind: control.Reject, Body: []byte(err.Error())}
			_ = m.channel.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = m.channel.Write(reject.Append(nil))
		}
		return err
	}
	frames, err := control.WelcomeFrames(m.welcome(), m.spec.Job)
	if err != nil {
		return err
	}
	// Bypass the send queue: it may hold messages of other ranks already.
	for _, f := range frames {
		err := control.WriteAll(m.channel, f.Append(nil), m.g.opts.HangTimeout, m.isFrozen)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("sent hello and did not read the welcome for %v", m.g.opts.HangTimeout)
		case err != nil:
			return io.EOF // the rank has disconnected
		}
	}
	m.g.mu.Lock()
	m.joined, m.isGoProgram = true, hello.Go != ""
	m.heartbeat.frameStarted(time.Now())
	m.g.mu.Unlock()
	m.goTask(m.runSendQueue)
	m.postEvent(Joined, hello.Go)
	m.g.mu.Lock()
	m.heartbeat.frameDone(time.Now())
	m.g.mu.Unlock()
	return nil
}

func (m *member) welcome() control.WelcomeBody {
	return control.WelcomeBody{
		Rank: m.spec.Rank, Size: len(m.g.members), Host: m.spec.Host,
		MaxMessage: m.g.opts.MaxMessage, MaxReport: m.g.opts.MaxReport,
	}
}

// runSendQueue sends queued frames until the rank disconnects or stops reading.
func (m *member) runSendQueue() {
	timeout := m.g.opts.HangTimeout
	err := m.sendQueue.Run(m.channel, timeout, m.isFrozen)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		m.fail(Hung, fmt.Sprintf("did not read its control channel for %v", timeout))
	}
}

func (m *member) isFrozen() bool {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.frozen
}

// readFrames handles frames until the channel closes or the rank violates the protocol.
func (m *member) readFrames(r io.Reader) error {
	limits := control.RankLimits(m.welcome())
	for {
		f, err := control.Read(r, limits)
		if err != nil {
			return err
		}
		if err := m.handleFrame(f); err != nil {
			return err
		}
	}
}

func (m *member) handleFrame(f control.Frame) error {
	g := m.g
	g.mu.Lock()
	m.heartbeat.frameStarted(time.Now())
	afterBye := m.byeReceived
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		m.heartbeat.frameDone(time.Now())
		g.mu.Unlock()
	}()
	if afterBye {
		return nil // from a goroutine that raced with Close
	}
	switch f.Kind {
	case control.Data:
		return m.forward(f)
	case control.Barrier:
		return m.enterBarrier(f.Num)
	case control.Pong:
		return m.handlePong(f.Num)
	case control.Mark:
		m.postEvent(Marked, validUTF8(f.Body))
	case control.Sample:
		if !json.Valid(f.Body) {
			return fmt.Errorf("%w: sample is not JSON", control.ErrProtocol)
		}
		e := m.newEvent(Sampled)
		e.Sample = f.Body
		g.dispatcher.post(e)
	case control.Report:
		g.mu.Lock()
		defer g.mu.Unlock()
		if m.report != nil {
			return fmt.Errorf("%w: a second report", control.ErrProtocol)
		}
		m.report = append([]byte{}, f.Body...) // not nil even if empty
	case control.DumpReply, control.CommandReply:
		return m.handleReply(f)
	case control.Bye:
		m.handleBye(validUTF8(f.Body))
	default:
		return fmt.Errorf("%w: unexpected %v", control.ErrProtocol, f.Kind)
	}
	return nil
}

// handleBye records the end of the rank and acknowledges it. The rank waits for the
// acknowledgement, so /proc still has its memory usage.
func (m *member) handleBye(reason string) {
	peak, _ := readPeakRSS(m.proc.pid)
	m.g.mu.Lock()
	m.byeReceived, m.byeReason = true, reason
	m.peakRSS = max(m.peakRSS, peak)
	m.g.mu.Unlock()
	m.disconnect()
	_ = m.sendQueue.PutUnbounded(control.Frame{Kind: control.ByeAck})
	m.sendQueue.Close()
}

// handleReply passes a reply to the waiting request. It drops a late reply.
func (m *member) handleReply(f control.Frame) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if f.Num == 0 || f.Num > m.g.lastRequestID {
		return fmt.Errorf("%w: %v to a request that was never sent", control.ErrProtocol, f.Kind)
	}
	if ch, ok := m.replies[f.Num]; ok {
		ch <- validUTF8(f.Body) // does not block: the buffer has one element
		delete(m.replies, f.Num)
	}
	return nil
}

func validUTF8(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
