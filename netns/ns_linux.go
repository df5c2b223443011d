package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NS is a network namespace without a name. It lives as long as the NS is open,
// or a process or a socket is in it.
type NS struct {
	net    *os.File
	handle *netlink.Handle // its sockets are inside
	batch  *batch          // likewise

	mu      sync.Mutex
	starter *thread // made when the first process is
	closed  bool
}

// New makes a namespace whose loopback interface is up.
func New() (*NS, error) { return newNS(func() error { return nil }) }

// newNS runs setup inside before it returns.
func newNS(setup func() error) (*NS, error) {
	ns := &NS{}
	err := onOwnThread(func() error {
		if err := ns.make(); err != nil {
			return err
		}
		return setup()
	})
	if err != nil {
		ns.Close() // what was opened goes; the first error counts
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return ns, nil
}

func (ns *NS) make() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return explain(fmt.Errorf("unshare: %w", err), thisMachine)
	}
	if ns.net, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	if ns.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	if ns.batch, err = newBatch(); err != nil {
		return err
	}
	ns.batch.setUp(loopbackIndex)
	return ns.batch.flush()
}

// loopbackIndex is that of lo in every new namespace.
const loopbackIndex = 1

// FD is the descriptor that holds the namespace. It is the NS's own.
func (ns *NS) FD() int { return int(ns.net.Fd()) }

// Do runs fn inside the namespace. Goroutines that fn starts run outside it:
// open sockets in fn, hand them out, and use them anywhere.
func (ns *NS) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := ns.enter(); err != nil {
			return err
		}
		return fn()
	})
}

func (ns *NS) enter() error {
	if err := unix.Setns(ns.FD(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return nil
}

// Start starts cmd inside the namespace, with a /sys of its own in which
// /sys/class/net is the namespace's (where the machine allows that mount). The
// process is killed when the NS is closed, and when this process ends, however
// it does.
func (ns *NS) Start(cmd *exec.Cmd) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if err := ns.makeStarter(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	dieWithParent(cmd)
	return ns.starter.run(cmd.Start)
}

// makeStarter makes the thread where all processes of the namespace are forked:
// a parent death signal comes when the thread that forked ends, not the process.
func (ns *NS) makeStarter() (err error) {
	if ns.closed {
		return errors.New("the network namespace is closed")
	}
	if ns.starter != nil {
		return nil
	}
	ns.starter, err = newThread(func() error {
		if err := ns.enter(); err != nil {
			return err
		}
		return mountSys()
	})
	return err
}

// dieWithParent has the kernel kill cmd when the thread that starts it ends.
func dieWithParent(cmd *exec.Cmd) {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr // the caller's may be shared by many commands
	}
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attr
}

// mountSys gives the calling thread, and what it forks, a mount namespace whose
// /sys is that of the network namespace it is in. In many containers a mount of
// sysfs is not allowed; programs then see the devices of the outer namespace
// there, and the right ones by netlink.
func mountSys() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	return nil
}

// Close lets go of the namespace and kills the processes that Start started and
// that still run. The kernel takes the namespace away when the last of them, and
// the last socket, is gone.
func (ns *NS) Close() error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.closed {
		return nil
	}
	ns.closed = true
	if ns.starter != nil {
		ns.starter.stop()
	}
	if ns.batch != nil {
		ns.batch.close()
	}
	if ns.handle != nil {
		ns.handle.Close()
	}
	if ns.net == nil {
		return nil
	}
	return ns.net.Close()
}
