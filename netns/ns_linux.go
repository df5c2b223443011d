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

// NS is an unnamed network namespace. It exists as long as the NS is open, or a
// process or a socket is in it.
type NS struct {
	net    *os.File
	handle *netlink.Handle // its sockets are in the namespace
	batch  *batch          // its socket is in the namespace

	mu         sync.Mutex
	forkThread *thread // created with the first process
	closed     bool
}

// New creates a namespace whose loopback interface is up.
func New() (*NS, error) { return newNS(func() error { return nil }) }

// newNS creates a namespace and runs setup inside it.
func newNS(setup func() error) (*NS, error) {
	ns := &NS{}
	err := onOwnThread(func() error {
		if err := ns.create(); err != nil {
			return err
		}
		return setup()
	})
	if err != nil {
		ns.Close() // the first error counts
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return ns, nil
}

// create moves the calling thread to a new network namespace, opens ns there, and sets the loopback
// interface up.
func (ns *NS) create() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return explainNamespaceError(fmt.Errorf("unshare: %w", err), thisMachine)
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

// loopbackIndex is the index of lo in a new namespace.
const loopbackIndex = 1

// FD returns the descriptor of the namespace, which the NS owns.
func (ns *NS) FD() int { return int(ns.net.Fd()) }

// Do runs fn inside the namespace. Goroutines that fn starts run outside it:
// open sockets in fn and use them anywhere.
func (ns *NS) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := ns.enter(); err != nil {
			return err
		}
		return fn()
	})
}

// enter moves the calling thread to the namespace.
func (ns *NS) enter() error {
	if err := unix.Setns(ns.FD(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return nil
}

// Start starts cmd inside the namespace. It mounts a /sys whose /sys/class/net is the namespace's,
// if the machine allows it. The process is killed when the NS is closed or this process dies.
func (ns *NS) Start(cmd *exec.Cmd) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if err := ns.ensureForkThread(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	dieWithParent(cmd)
	return ns.forkThread.run(cmd.Start)
}

// ensureForkThread creates the thread that forks all processes of the
// namespace: the parent death signal is sent when the thread that forked ends.
func (ns *NS) ensureForkThread() (err error) {
	if ns.closed {
		return errors.New("the network namespace is closed")
	}
	if ns.forkThread != nil {
		return nil
	}
	ns.forkThread, err = newThread(func() error {
		if err := ns.enter(); err != nil {
			return err
		}
		return mountSys()
	})
	return err
}

// dieWithParent makes the kernel kill cmd when the thread that starts it ends.
func dieWithParent(cmd *exec.Cmd) {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr // the caller may share it between commands
	}
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attr
}

// mountSys gives the calling thread and its children a mount namespace with the
// /sys of the current network namespace. Many containers forbid the mount;
// programs then see the outer devices in /sys, and the right ones by netlink.
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

// Close releases the namespace and kills the processes started by Start. The
// kernel removes the namespace after the last process and socket in it.
func (ns *NS) Close() error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.closed {
		return nil
	}
	ns.closed = true
	if ns.forkThread != nil {
		ns.forkThread.stop()
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
