package kernel

import (
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

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/lab/kernel/image"
	"github.com/fabrictest/fabrictest/netns"
)

// Lab is guests on a wire.
type Lab struct {
	guestCalls
	cfg    Config
	qemu   string
	accel  Accel
	ns     place
	patch  *patch
	initrd *os.File // without a name: it goes with the processes that hold it

	mu       sync.Mutex
	machines []*machine
	down     bool
	restarts []sync.Mutex // one a guest
}

// Check says why this machine can have no guests: what is missing, and how to get
// it. It asks nothing of the user's rights that Start does not need.
func Check() error { return check("qemu-system-x86_64") }

func check(qemu string) error {
	if err := image.Need("virtual machines", qemu); err != nil {
		return err
	}
	if err := netns.Available(); err != nil {
		return err
	}
	return checkTun()
}

// Up brings guests up and returns when all are ready, or one will never be.
func Up(ctx context.Context, cfg Config) (*Lab, error) { return upIn(ctx, cfg, newPlace) }

// UpHere is Up with the wire in the network namespace that this process is in, so that
// whatever it opens is on the guests' network. It has to be that of an enclosure (see
// netns.StartUnshared), with nothing in it: all of it ends with the process.
func UpHere(ctx context.Context, cfg Config) (*Lab, error) { return upIn(ctx, cfg, layHere) }

func upIn(ctx context.Context, cfg Config, find func(Config) (place, error)) (*Lab, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := image.Need("virtual machines", cfg.QEMU); err != nil {
		return nil, err
	}
	if err := checkTun(); err != nil {
		return nil, err
	}
	l := &Lab{cfg: cfg, restarts: make([]sync.Mutex, cfg.Guests), machines: make([]*machine, cfg.Guests)}
	l.guestCalls.dial = l.dialGuest
	if l.qemu, err = exec.LookPath(cfg.QEMU); err != nil {
		return nil, err
	}
	if l.accel, err = chooseAccel(cfg); err != nil {
		return nil, err
	}
	if l.initrd, err = archives(cfg); err != nil {
		return nil, err
	}
	if l.ns, err = find(cfg); err != nil {
		l.initrd.Close()
		return nil, err
	}
	l.patch = newPatch(l.ns, cfg.Guests, cfg.Seed)
	for id := 1; id <= cfg.Guests; id++ {
		if err := l.patch.impair(id, cfg.Impair); err != nil {
			return nil, errors.Join(err, l.Down())
		}
	}
	if err := l.bootAll(ctx); err != nil {
		return nil, errors.Join(err, l.Down())
	}
	return l, nil
}

// archives are what guests unpack as their first file system, in memory.
func archives(c Config) (*os.File, error) {
	program := c.Program
	if program == "" {
		program = "/proc/self/exe"
	}
	if err := checkProgram(program); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("fabrictest-initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for the guests' files: %w", err)
	}
	f := os.NewFile(uintptr(fd), "initrd")
	if err := writeArchives(f, c.Image.Archives, program); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (l *Lab) bootAll(ctx context.Context) error {
	for i := range l.machines {
		m, err := l.boot(i + 1)
		if m != nil {
			l.machines[i] = m
		}
		if err != nil {
			return err
		}
	}
	for _, m := range l.machines {
		if err := m.await(ctx, l.cfg.BootTimeout); err != nil {
			return err
		}
	}
	return nil
}

// Accel is how the guests' processors are made.
func (l *Lab) Accel() Accel { return l.accel }

// Guests are where the guests are found.
func (l *Lab) Guests() []Guest {
	all := make([]Guest, 0, l.cfg.Guests)
	for i := range l.cfg.Guests {
		all = append(all, guestAt(i+1))
	}
	return all
}

// machine is a guest as it is now.
func (l *Lab) machine(id int) (*machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.down:
		return nil, errors.New("the lab is down")
	case id < 1 || id > len(l.machines):
		return nil, fmt.Errorf("no guest %d: there are 1 to %d", id, len(l.machines))
	}
	return l.machines[id-1], nil
}

// dialTimeout is how long a guest has to take a connection: it may be busy.
const dialTimeout = 20 * time.Second

// dialGuest connects to what serves in a guest. The context that it returns ends with the
// guest too: a connection to a machine that is off would stay for ever.
func (l *Lab) dialGuest(ctx context.Context, id int) (context.Context, context.CancelFunc, net.Conn, error) {
	m, err := l.machine(id)
	if err != nil {
		return nil, nil, nil, err
	}
	if !m.alive() {
		return nil, nil, nil, m.obituary()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		select {
		case <-m.ended:
			cancel(m.obituary())
		case <-watched:
		}
	}()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			close(watched)
			cancel(nil)
		})
	}
	var conn net.Conn
	err = l.ns.Do(func() (err error) {
		d := net.Dialer{Timeout: dialTimeout}
		conn, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(guest.Control(id).Addr(), guest.Port).String())
		return err
	})
	if err != nil {
		// A dialer keeps the deadline of the context by a clock of its own, and may
		// be a moment ahead of it.
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

// Restart switches a guest off, if it is not, and on again, and returns when it is
// ready. All that ran there, and all files that were put there, are gone.
func (l *Lab) Restart(ctx context.Context, id int) error {
	if _, err := l.machine(id); err != nil {
		return err
	}
	l.restarts[id-1].Lock()
	defer l.restarts[id-1].Unlock()
	m, err := l.machine(id)
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
	if next != nil {
		l.machines[id-1] = next
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return next.await(ctx, l.cfg.BootTimeout)
}

// Impair replaces what packets meet by chance on a guest's link. The first time, the
// link is taken from the bridge and put through a switch in user space, where it
// stays.
func (l *Lab) Impair(id int, m Impairment) error { return l.patch.impair(id, m) }

// SetLink takes a guest's cable out, or puts it back.
func (l *Lab) SetLink(id int, up bool) error { return l.patch.setLink(id, up) }

// Console is the end of what a guest has printed since it was switched on.
func (l *Lab) Console(id int) (string, error) {
	m, err := l.machine(id)
	if err != nil {
		return "", err
	}
	return m.console.all(), nil
}

// Printed is what a guest has printed since it was switched on and had printed so many
// octets, and how many that makes now.
func (l *Lab) Printed(id int, after int64) (text string, upTo int64, err error) {
	m, err := l.machine(id)
	if err != nil {
		return "", after, err
	}
	text, upTo = m.console.since(after)
	return text, upTo, nil
}

// Status is how all guests are.
func (l *Lab) Status() []Status {
	all := make([]Status, 0, l.cfg.Guests)
	for _, g := range l.Guests() {
		s := Status{Guest: g, Link: l.patch.link(g.ID)}
		if m, err := l.machine(g.ID); err != nil {
			s.Why = err.Error()
		} else if s.Up, s.BootSecs = m.alive(), m.bootTime().Seconds(); !s.Up {
			var e *GuestError
			if errors.As(m.obituary(), &e) {
				s.Why = e.Reason
			}
		}
		all = append(all, s)
	}
	return all
}

// Down switches all guests off and takes the wire away.
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
	return errors.Join(l.patch.close(), l.ns.Close())
}
