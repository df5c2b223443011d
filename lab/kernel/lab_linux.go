package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

// Lab is a set of guests on a bridge.
type Lab struct {
	guestClient
	cfg    Config
	qemu   string
	Accel  Accel // virtualisation of the guests' CPUs
	ns     netNamespace
	links  *linkSet
	initrd *os.File // a memfd

	mu       sync.Mutex
	machines []*machine
	down     bool
	restarts []sync.Mutex // one per guest
}

// Check returns an error if this machine cannot run guests, with what is missing
// and how to install it.
func Check() error { return check("qemu-system-x86_64") }

// check returns an error if this machine cannot boot guests with a QEMU program.
func check(qemu string) error {
	if err := RequirePrograms("virtual machines", qemu); err != nil {
		return err
	}
	if err := netns.Available(); err != nil {
		return err
	}
	return checkTun()
}

// Up boots guests and returns when all are ready, or one has failed.
func Up(ctx context.Context, cfg Config) (*Lab, error) { return upIn(ctx, cfg, newLabNamespace) }

// UpInCurrentNamespace boots guests with the bridge in the network namespace of this process, whose
// sockets then are on the guests' network, and returns when all are ready, or one has failed. The
// namespace must be that of netns.StartUnshared, and empty.
func UpInCurrentNamespace(ctx context.Context, cfg Config) (*Lab, error) {
	return upIn(ctx, cfg, useCurrentNamespace)
}

// upIn boots the guests of a lab in the network namespace that newNamespace returns.
func upIn(ctx context.Context, cfg Config, newNamespace func(Config) (netNamespace, error)) (*Lab, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := RequirePrograms("virtual machines", cfg.QEMU); err != nil {
		return nil, err
	}
	if err := checkTun(); err != nil {
		return nil, err
	}
	l := &Lab{cfg: cfg, restarts: make([]sync.Mutex, cfg.Guests), machines: make([]*machine, cfg.Guests)}
	l.guestClient.dial = l.dialGuest
	if l.qemu, err = exec.LookPath(cfg.QEMU); err != nil {
		return nil, err
	}
	if l.Accel, err = chooseAccel(cfg); err != nil {
		return nil, err
	}
	if l.initrd, err = buildInitrd(cfg); err != nil {
		return nil, err
	}
	if l.ns, err = newNamespace(cfg); err != nil {
		l.initrd.Close()
		return nil, err
	}
	l.links = &linkSet{ns: l.ns, seed: cfg.Seed, links: make([]*switchedLink, cfg.Guests), down: make([]bool, cfg.Guests)}
	for id := 1; id <= cfg.Guests; id++ {
		if err := l.links.impair(id, cfg.Impair); err != nil {
			return nil, errors.Join(err, l.Down())
		}
	}
	if err := l.bootAll(ctx); err != nil {
		return nil, errors.Join(err, l.Down())
	}
	return l, nil
}

// buildInitrd returns the initrd of the guests as a memfd, which disappears with the lab's process.
func buildInitrd(c Config) (*os.File, error) {
	program := cmp.Or(c.Program, "/proc/self/exe")
	if err := checkProgram(program); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("fabrictest-initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the initrd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "initrd")
	if err := writeInitrd(f, c.Image.Archives, program); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// bootAll boots all guests at the same time and waits until they are ready.
func (l *Lab) bootAll(ctx context.Context) error {
	for i := range l.machines {
		var err error
		if l.machines[i], err = l.boot(i + 1); err != nil {
			return err
		}
	}
	for _, m := range l.machines {
		if err := m.waitReady(ctx, l.cfg.BootTimeout); err != nil {
			return err
		}
	}
	return nil
}

// Guests returns the addresses of the guests.
func (l *Lab) Guests() []Guest {
	all := make([]Guest, 0, l.cfg.Guests)
	for i := range l.cfg.Guests {
		id := i + 1
		all = append(all, Guest{
			ID: id, IPv4: Wire4(id).Addr(), IPv6: Wire6(id).Addr(), MAC: WireMAC(id), Control: ControlAddr(id).Addr(),
		})
	}
	return all
}

// machine returns the virtual machine of a guest; Restart replaces it by another. It fails if there
// is no such guest or the lab is down.
func (l *Lab) machine(id int) (*machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := checkGuest(id, len(l.machines), l.down); err != nil {
		return nil, err
	}
	return l.machines[id-1], nil
}

// checkGuest returns an error if the lab is down, or its guests, 1 to n, do not include id.
func checkGuest(id, n int, labDown bool) error {
	switch {
	case labDown:
		return errors.New("the lab is down")
	case id < 1 || id > n:
		return fmt.Errorf("no guest %d: there are 1 to %d", id, n)
	}
	return nil
}

// dialTimeout is how long a guest, which may be busy, has to accept a connection.
const dialTimeout = 20 * time.Second

// dialGuest connects to the command server of a guest. The returned context ends with ctx, with the
// returned function, and with the guest: a connection to a stopped machine does not close.
func (l *Lab) dialGuest(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	m, err := l.machine(id)
	if err != nil {
		return nil, nil, nil, err
	}
	if !m.alive() {
		return nil, nil, nil, m.exitError()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() { cancel(nil) }
	go func() {
		select {
		case <-m.ended:
			cancel(m.exitError())
		case <-ctx.Done():
		}
	}()
	var conn net.Conn
	err = l.ns.Do(func() (err error) {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(ControlAddr(id).Addr(), GuestPort).String())
		return err
	})
	if err != nil {
		// The dialer's timer may expire just before that of the context.
		if until, ok := ctx.Deadline(); ok && !time.Now().Before(until) {
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		stop()
		return nil, nil, nil, fmt.Errorf("guest %d does not answer: %w", id, err)
	}
	return ctx, stop, conn, nil
}

// Restart stops a guest and boots it again, and returns when it is ready. Its
// programs and files are lost.
func (l *Lab) Restart(ctx context.Context, id int) error {
	if _, err := l.machine(id); err != nil {
		return err
	}
	l.restarts[id-1].Lock()
	defer l.restarts[id-1].Unlock()
	m, err := l.machine(id) // another Restart may have replaced it meanwhile
	if err != nil {
		return err
	}
	m.stop("was restarted")
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return errors.New("the lab went down")
	}
	next, err := l.boot(id)
	if err == nil {
		l.machines[id-1] = next
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return next.waitReady(ctx, l.cfg.BootTimeout)
}

// Impair replaces the random impairments of a guest's link. The first call moves
// the link to a user-space switch.
func (l *Lab) Impair(id int, m Impairment) error { return l.links.impair(id, m) }

// SetLink sets a guest's link up or down.
func (l *Lab) SetLink(id int, up bool) error { return l.links.setLink(id, up) }

// ConsoleSince returns the console output of a guest from an offset on. upTo is the number of all
// bytes that were printed, and the offset for the next call.
func (l *Lab) ConsoleSince(id int, offset int64) (text string, upTo int64, err error) {
	m, err := l.machine(id)
	if err != nil {
		return "", offset, err
	}
	text, upTo = m.console.since(offset)
	return text, upTo, nil
}

// Status returns the state of all guests.
func (l *Lab) Status() []Status {
	all := make([]Status, 0, l.cfg.Guests)
	for _, g := range l.Guests() {
		s := Status{Guest: g, Link: l.links.link(g.ID)}
		if m, err := l.machine(g.ID); err != nil {
			s.DownReason = err.Error()
		} else if s.Up, s.BootSecs = m.alive(), m.bootTime().Seconds(); !s.Up {
			var e *GuestError
			if errors.As(m.exitError(), &e) {
				s.DownReason = e.Reason
			}
		}
		all = append(all, s)
	}
	return all
}

// Down stops all guests and removes the network. A second call does nothing.
func (l *Lab) Down() error {
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return nil
	}
	l.down = true
	all := l.machines
	l.mu.Unlock()
	for _, m := range all {
		if m != nil {
			m.stop("was switched off")
		}
	}
	l.initrd.Close()
	return errors.Join(l.links.close(), l.ns.Close())
}
