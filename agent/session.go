package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/control"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxCalls limits the pending calls of a client.
const maxCalls = 1024

// session serves one client.
type session struct {
	*table
	host   Host
	holds  holder
	out    func(control.Frame) // does not block
	memory *hostMemories
	// run executes a call concurrently with others.
	run func(func())
	// crash is called for a panic in a call; nil lets it propagate.
	crash func(what any, stack []byte)

	calls sync.WaitGroup

	state   sync.Mutex
	running int // number of calls
	ended   bool
}

// holder ensures that one client at a time holds a device.
type holder interface {
	// hold takes a device for a session, which may hold it already.
	hold(device string, s *session) error
	// release releases it, once for each hold.
	release(device string, s *session)
}

// newSession returns the agent's end of a connection. It reserves devices with holds, opens them on
// the host, and sends frames with out. Each call runs in a goroutine.
func newSession(host Host, holds holder, out func(control.Frame)) *session {
	return &session{
		table: newTable(), host: host, holds: holds, out: out, memory: newHostMemories(),
		run: func(f func()) { go f() },
	}
}

// receive processes a frame from the client. It applies memory changes before it processes
// the next frame, so that a call sees the memory as of its time.
func (s *session) receive(f control.Frame) error {
	if f.Kind == kindMemory {
		return s.memory.apply(f.Body)
	}
	return s.call(f)
}

// call starts a call, whose reply is sent when it is done. A session that has ended ignores it.
func (s *session) call(f control.Frame) error {
	var received uint64 // number of memory frames that the client has received
	body, err := parseUvarint(f.Body, &received)
	if err != nil {
		return err
	}
	if len(body) == 0 || int(body[0]) >= len(calls) {
		return fmt.Errorf("%w: unknown call", errBadMessage)
	}
	s.memory.acknowledge(received)
	v, args := calls[body[0]], body[1:]
	s.state.Lock()
	tooMany := s.running >= maxCalls
	ended := s.ended
	if !tooMany && !ended {
		s.running++
		s.calls.Add(1)
	}
	s.state.Unlock()
	switch {
	case ended:
		return nil
	case tooMany:
		return fmt.Errorf("%w: more than %d pending calls", errBadMessage, maxCalls)
	}
	s.run(func() {
		defer s.calls.Done()
		reply := s.execute(v, args)
		s.state.Lock()
		s.running-- // the client may make its next call as soon as it has the reply
		s.state.Unlock()
		s.out(control.Frame{Kind: control.Reply, Num: f.Num, Body: reply})
	})
	return nil
}

// execute executes a call, sends changed memory, and returns the reply. If s.crash is set, a panic
// is passed to it and fails the call; otherwise the panic propagates.
func (s *session) execute(v *verb, args []byte) (reply []byte) {
	func() {
		if s.crash != nil {
			defer func() {
				if reason := recover(); reason != nil {
					s.crash(reason, debug.Stack())
					reply = failureReply(fmt.Errorf("the device's software crashed: %v", reason))
				}
			}()
		}
		reply = v.serve(s, args)
	}()
	if len(reply) > maxFrameLen {
		reply = failureReply(fmt.Errorf("%w: reply of %d bytes", verbs.ErrNoMemory, len(reply)))
	}
	if err := s.memory.sendChanges(func(body []byte) { s.out(control.Frame{Kind: kindMemory, Body: body}) }); err != nil {
		reply = failureReply(err)
	}
	return reply
}

// failureReply returns the reply of a failed call, without results.
func failureReply(err error) []byte {
	f := failureOf(err)
	return encode(nil, &f, nil)
}

// addNew assigns a handle to a new object, which a call has made from parent. If that fails, it
// closes the new object.
func (s *session) addNew(parent, object any) error {
	_, err := s.add(parent, object)
	if err != nil {
		discard(object)
	}
	return err
}

// discard closes an object that the client does not get.
func discard(object any) {
	if c, ok := object.(closer); ok {
		c.Close()
	}
}

// open opens a device, which the session then holds until it is closed.
func (s *session) open(device string) (openedDevice, error) {
	if err := s.holds.hold(device, s); err != nil {
		return openedDevice{}, err
	}
	dev, err := s.host.Open(device)
	if err != nil {
		s.holds.release(device, s)
		return openedDevice{}, err
	}
	e, err := s.add(nil, dev)
	if err != nil {
		discard(dev)
		s.holds.release(device, s)
		return openedDevice{}, err
	}
	s.mu.Lock()
	e.device = device
	s.mu.Unlock()
	return openedDevice{e.handle, dev.Info()}, nil
}

// setLink calls Host.SetLink, unless another client holds the device.
func (s *session) setLink(device string, up bool) error {
	return s.exclusively(device, func() error { return s.host.SetLink(device, up) })
}

// setAddress calls Host.SetAddress, unless another client holds the device.
func (s *session) setAddress(device string, addr netip.Prefix, present bool) error {
	return s.exclusively(device, func() error { return s.host.SetAddress(device, addr, present) })
}

// restart closes the client's contexts of a device and calls Host.Restart, unless another client
// holds the device.
func (s *session) restart(device string) error {
	return s.exclusively(device, func() error {
		if err := s.closeDevice(device); err != nil {
			return err
		}
		return s.host.Restart(device)
	})
}

// exclusively runs do and holds the device meanwhile. It fails if another client holds the device.
func (s *session) exclusively(device string, do func() error) error {
	if err := s.holds.hold(device, s); err != nil {
		return err
	}
	defer s.holds.release(device, s)
	return do()
}

// close closes an object.
func (s *session) close(object closer) error {
	if err := object.Close(); err != nil {
		return err
	}
	if e := s.entryOf(object); e != nil {
		s.recordClosed(e)
	}
	return nil
}

// recordClosed records that an object is closed, and releases its memory or its device.
func (s *session) recordClosed(e *entry) {
	s.mu.Lock()
	device := e.device
	e.device = ""
	s.mu.Unlock()
	s.memory.unuse(s.markClosed(e)...)
	if device != "" {
		s.holds.release(device, s)
	}
}

// closeDevice closes the contexts of a device.
func (s *session) closeDevice(device string) (err error) {
	for _, e := range s.openEntries(func(e *entry) bool { return e.device == device && e.isContext() }) {
		err = errors.Join(err, s.closeEntry(e))
	}
	return err
}

// closeEntry closes the object of an entry, if it can be closed.
func (s *session) closeEntry(e *entry) error {
	c, ok := e.object.(closer)
	if !ok {
		return nil
	}
	return s.close(c)
}

// regMR registers the agent's copy of memory that the client has announced, and keeps the copy in
// use until the region is closed.
func (s *session) regMR(pd verbs.PD, in newMR) (registeredMR, error) {
	mem, buf, err := s.memory.use(&in)
	if err != nil {
		return registeredMR{}, err
	}
	mr, err := pd.RegMR(verbs.MRInit{Buf: buf, Addr: in.Addr, Access: in.Access})
	if err == nil {
		var e *entry
		if e, err = s.add(pd, mr); err == nil {
			s.mu.Lock()
			e.memory = mem
			s.mu.Unlock()
			return registeredMR{e.handle, mr.LKey(), mr.RKey(), mr.Addr(), mr.Len()}, nil
		}
		discard(mr)
	}
	if mem != nil {
		s.memory.unuse(mem)
	}
	return registeredMR{}, err
}

// end closes all objects, the newest first, and then those made by calls that were pending. If that
// takes longer than grace, it returns an error and goes on in the background. Meanwhile it holds
// the opened devices once more, so that no other client gets them before all objects are closed.
func (s *session) end(grace time.Duration) error {
	s.state.Lock()
	s.ended = true
	s.state.Unlock()
	var devices []string
	for _, e := range s.openEntries(func(e *entry) bool { return e.device != "" }) {
		if s.holds.hold(e.device, s) == nil {
			devices = append(devices, e.device)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, d := range devices {
				s.holds.release(d, s)
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
		return fmt.Errorf("the client's objects are not closed after %v", grace)
	}
}

// closeAll closes all objects, the newest first. It continues after a panic.
func (s *session) closeAll() {
	for _, e := range s.openEntries(func(*entry) bool { return true }) {
		func() {
			defer func() {
				if v := recover(); v != nil && s.crash != nil {
					s.crash(v, debug.Stack())
				}
			}()
			if err := s.closeEntry(e); err != nil && e.isContext() {
				s.recordClosed(e) // release the device even if closing fails
			}
		}()
	}
}
