package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// maxCalls is how many calls of a caller may be under way.
const maxCalls = 1024

// session is what an agent does for one caller.
type session struct {
	*table
	host   Host
	holds  holder
	out    sender
	memory *hostMemories
	// run has a call carried out, beside others.
	run func(func())
	// crash is told of a panic in a call; nil lets it through.
	crash func(what any, stack []byte)

	calls sync.WaitGroup

	state   sync.Mutex
	running int
	over    bool
}

// holder sees to it that one caller at a time has a device.
type holder interface {
	// hold takes a device for a session, which may have it already.
	hold(device string, s *session) error
	// letGo gives it back, once for each hold.
	letGo(device string, s *session)
}

func newSession(host Host, holds holder, out sender) *session {
	return &session{
		table: newTable(), host: host, holds: holds, out: out, memory: newHostMemories(),
		run: func(f func()) { go f() },
	}
}

// receive takes a frame of the caller. Memory is changed before the next frame is
// looked at, so that a call finds it as it was when it was made.
func (s *session) receive(kind byte, body []byte) error {
	switch kind {
	case frameMemory:
		return s.memory.take(body)
	case frameCall:
		return s.call(body)
	default:
		return fmt.Errorf("%w: a frame of kind %d", errBadMessage, kind)
	}
}

func (s *session) call(body []byte) error {
	var got, id uint64
	body, err := parseUvarint(body, &got)
	if err != nil {
		return err
	}
	if body, err = parseUvarint(body, &id); err != nil {
		return err
	}
	if len(body) == 0 || int(body[0]) >= len(calls) {
		return fmt.Errorf("%w: no call that there is", errBadMessage)
	}
	s.memory.seen(got)
	what, args := calls[body[0]], body[1:]
	s.state.Lock()
	tooMany := s.running >= maxCalls
	ended := s.over
	if !tooMany && !ended {
		s.running++
		s.calls.Add(1)
	}
	s.state.Unlock()
	switch {
	case ended:
		return nil
	case tooMany:
		return fmt.Errorf("%w: more than %d calls at a time", errBadMessage, maxCalls)
	}
	s.run(func() {
		defer s.calls.Done()
		reply := s.carryOut(what, id, args)
		s.state.Lock()
		s.running--
		s.state.Unlock()
		s.out.send(reply)
	})
	return nil
}

// carryOut makes a call, tells what it did to memory, and returns the reply.
func (s *session) carryOut(what servant, id uint64, args []byte) (reply []byte) {
	begin := binary.AppendUvarint(newFrame(frameReply, 64), id)
	func() {
		if s.crash != nil {
			defer func() {
				if v := recover(); v != nil {
					s.crash(v, debug.Stack())
					reply = failed(begin, fmt.Errorf("the device's software crashed: %v", v))
				}
			}()
		}
		reply = what.serve(s, args, begin)
	}()
	if tooLong(reply) {
		reply = failed(begin, fmt.Errorf("%w: an answer of %d bytes", verbs.ErrNoMemory, len(reply)))
	}
	if err := s.memory.tell(s.out.send); err != nil {
		reply = failed(begin, err)
	}
	return reply
}

// failed is a reply without results.
func failed(begin []byte, err error) []byte {
	f := failureOf(err)
	return encode(begin[:len(begin):len(begin)], &f, nil)
}

// keep gives what a call has made a handle, and makes the results of it. There is
// nothing to keep where the call has failed, or made nothing.
func keep[T, Out any](s *session, from any, object T, err error, results func(handle) Out) (out Out, _ error) {
	if err != nil || any(object) == nil {
		return out, err
	}
	e, err := s.add(from, object)
	if err != nil {
		closeIfOpen(object)
		return out, err
	}
	return results(e.handle), nil
}

func closeIfOpen(object any) {
	if c, ok := object.(closer); ok {
		c.Close() // nobody knows that it was there
	}
}

// open opens a device.
func (s *session) open(device string) (opened, error) {
	if err := s.holds.hold(device, s); err != nil {
		return opened{}, err
	}
	dev, err := s.host.Open(device)
	if err != nil {
		s.holds.letGo(device, s)
		return opened{}, err
	}
	e, err := s.add(nil, dev)
	if err != nil {
		closeIfOpen(dev)
		s.holds.letGo(device, s)
		return opened{}, err
	}
	s.mu.Lock()
	e.device = device
	s.mu.Unlock()
	return opened{e.handle, dev.Info()}, nil
}

// alone does something to a device that no other caller has.
func (s *session) alone(device string, do func() error) error {
	if err := s.holds.hold(device, s); err != nil {
		return err
	}
	defer s.holds.letGo(device, s)
	return do()
}

// close closes an object.
func (s *session) close(object closer) error {
	if err := object.Close(); err != nil {
		return err
	}
	if e := s.of(object); e != nil {
		s.closed(e)
	}
	return nil
}

// closed notes that an object is.
func (s *session) closed(e *entry) {
	s.mu.Lock()
	device := e.device
	e.device = ""
	s.mu.Unlock()
	s.memory.unuse(s.forget(e)...)
	if device != "" {
		s.holds.letGo(device, s)
	}
}

// closeDevice closes the contexts of a device.
func (s *session) closeDevice(device string) (err error) {
	for _, e := range s.openOnes(func(e *entry) bool { return e.device == device && e.root == e }) {
		err = errors.Join(err, s.closeEntry(e))
	}
	return err
}

func (s *session) closeEntry(e *entry) error {
	c, ok := e.object.(closer)
	if !ok {
		return nil
	}
	return s.close(c)
}

// regMR registers memory that the caller has told of.
func (s *session) regMR(in *newMR) (madeMR, error) {
	mem, buf, err := s.memory.use(in)
	if err != nil {
		return madeMR{}, err
	}
	mr, err := in.On.RegMR(verbs.MRInit{Buf: buf, Addr: in.Addr, Access: in.Access})
	if err == nil {
		var e *entry
		if e, err = s.add(in.On, mr); err == nil {
			s.mu.Lock()
			e.memory = mem
			s.mu.Unlock()
			return madeMR{e.handle, mr.LKey(), mr.RKey(), mr.Addr(), mr.Len()}, nil
		}
		closeIfOpen(mr)
	}
	if mem != nil {
		s.memory.unuse(mem)
	}
	return madeMR{}, err
}

// end closes everything: the newest first, then, when the calls that were under way
// have ended by that, what they left. It returns an error if that takes too long; it
// goes on all the same, and the devices are held until it is done.
func (s *session) end(grace time.Duration) error {
	s.state.Lock()
	s.over = true
	s.state.Unlock()
	var devices []string
	s.openOnes(func(e *entry) bool { // until the last of it is closed
		if e.device != "" && s.holds.hold(e.device, s) == nil {
			devices = append(devices, e.device)
		}
		return false
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, d := range devices {
				s.holds.letGo(d, s)
			}
		}()
		s.closeAll()
		s.calls.Wait()
		s.closeAll()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("what the caller had opened is not closed after %v", grace)
	}
}

func (s *session) closeAll() {
	for _, e := range s.openOnes(func(*entry) bool { return true }) {
		func() {
			defer func() {
				if v := recover(); v != nil && s.crash != nil {
					s.crash(v, debug.Stack())
				}
			}()
			if err := s.closeEntry(e); err != nil && e.root == e {
				s.closed(e) // a device that cannot be closed is nobody's all the same
			}
		}()
	}
}
