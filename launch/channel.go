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

// listen reads a rank's channel to its end. What it waits for meanwhile, a queue
// or the caller's OnEvent, is not held against the rank.
func (m *member) listen() {
	defer m.leave()
	r := bufio.NewReaderSize(m.channel, 64<<10)
	err := m.greet(r)
	if err == nil {
		err = m.hear(r)
	}
	if !ended(err) {
		m.fail(Failed, err.Error())
	}
}

// ended says whether an error means no more than that the peer is not there.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)
}

// greet waits for the rank to join, and lets it in.
func (m *member) greet(r io.Reader) error {
	hello, err := control.ReadHello(r)
	if err != nil {
		if errors.Is(err, control.ErrProtocol) {
			refusal := control.Frame{Kind: control.Reject, Body: []byte(err.Error())}
			_ = m.channel.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = m.channel.Write(refusal.Append(nil))
		}
		return err
	}
	frames, err := control.WelcomeFrames(m.terms(), m.spec.Job)
	if err != nil {
		return err
	}
	// The welcome goes before whatever others have sent to this rank already.
	for _, f := range frames {
		err := control.WriteAll(m.channel, f.Append(nil), m.g.opts.HangTimeout, m.excused)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("said hello and did not read the answer for %v", m.g.opts.HangTimeout)
		case err != nil:
			return io.EOF // there is nobody to be welcomed
		}
	}
	m.g.mu.Lock()
	m.joined, m.speaksGo = true, hello.Go != ""
	m.silence.handling(time.Now())
	m.g.mu.Unlock()
	m.errand(m.write)
	m.tell(Joined, hello.Go)
	m.g.mu.Lock()
	m.silence.heard(time.Now())
	m.g.mu.Unlock()
	return nil
}

func (m *member) terms() control.WelcomeBody {
	return control.WelcomeBody{
		Rank: m.spec.Rank, Size: len(m.g.members), Host: m.spec.Host,
		MaxMessage: m.g.opts.MaxMessage, MaxReport: m.g.opts.MaxReport,
	}
}

// write sends what is queued for the rank, until it leaves or stops reading.
func (m *member) write() {
	patience := m.g.opts.HangTimeout
	err := m.outbox.Run(m.channel, patience, m.excused)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		m.fail(Hung, fmt.Sprintf("did not read its control channel for %v", patience))
	}
}

// excused says whether the rank need not react, being frozen by order.
func (m *member) excused() bool {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.frozen
}

// hear handles frames until the channel ends or the rank breaks a rule.
func (m *member) hear(r io.Reader) error {
	limits := control.RankLimits(m.terms())
	for {
		f, err := control.Read(r, limits)
		if err != nil {
			return err
		}
		if err := m.handle(f); err != nil {
			return err
		}
	}
}

func (m *member) handle(f control.Frame) error {
	g := m.g
	g.mu.Lock()
	m.silence.handling(time.Now())
	after := m.bye
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		m.silence.heard(time.Now())
		g.mu.Unlock()
	}()
	if after {
		// A goroutine of the rank may just have been too late.
		return nil
	}
	switch f.Kind {
	case control.Data:
		return m.forward(f)
	case control.Barrier:
		return m.enterBarrier(f.Num)
	case control.Pong:
		return m.pong(f.Num)
	case control.Mark:
		m.tell(Marked, text(f.Body))
	case control.Sample:
		if !json.Valid(f.Body) {
			return fmt.Errorf("%w: sample is not JSON", control.ErrProtocol)
		}
		e := m.event(Sampled)
		e.Sample = f.Body
		g.teller.tell(e)
	case control.Report:
		g.mu.Lock()
		defer g.mu.Unlock()
		if m.report != nil {
			return fmt.Errorf("%w: a second report", control.ErrProtocol)
		}
		m.report = append([]byte{}, f.Body...) // not nil even if empty
	case control.DumpReply, control.CommandReply:
		return m.reply(f)
	case control.Bye:
		m.sayFarewell(text(f.Body))
	default:
		return fmt.Errorf("%w: unexpected %v", control.ErrProtocol, f.Kind)
	}
	return nil
}

// sayFarewell takes note of the rank's end. The rank waits for the answer, so its
// process is still there to be measured.
func (m *member) sayFarewell(reason string) {
	peak, _ := peakRSS(m.proc.pid)
	m.g.mu.Lock()
	m.bye, m.byeReason = true, reason
	m.peak = max(m.peak, peak)
	m.g.mu.Unlock()
	m.leave()
	_ = m.outbox.PutUnbounded(control.Frame{Kind: control.ByeAck})
	m.outbox.Close()
}

// reply hands an answer to whoever asked. One that comes too late is dropped.
func (m *member) reply(f control.Frame) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if f.Num == 0 || f.Num > m.g.asked {
		return fmt.Errorf("%w: %v to a question that was never asked", control.ErrProtocol, f.Kind)
	}
	if ch, ok := m.replies[f.Num]; ok {
		ch <- text(f.Body) // has room for one
		delete(m.replies, f.Num)
	}
	return nil
}

func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
