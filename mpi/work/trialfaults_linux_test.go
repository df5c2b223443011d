package work_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/netns"
)

// victimCommand has the test binary be a rank that runs everything. The next arguments say
// what happens to the last of them, and in which phase.
const victimCommand = "test-victim"

// abortCode is what all ranks end with when one aborts.
const abortCode = 7

// asVictim is a rank of a run in which something happens. It ends well if it was told.
func asVictim(what disaster, phase string) error {
	p, err := mpihost.Join()
	if err != nil {
		return err
	}
	var o mpi.Options
	if err := json.Unmarshal(p.Job().Options, &o); err != nil {
		return err
	}
	return p.Run(func(e *transport.Env) error {
		var struck error
		reach := func(reached string) {
			if e.Rank == e.Size-1 && reached == phase {
				struck = happen(e, what)
			}
		}
		reach("set-up")
		err := mpi.Run(e, o, func(w *mpi.World) error { return everything(w, reach) })
		switch {
		case struck != nil:
			return struck
		case what == railCut || phase == "end" && err == nil: // by then a rank may have all that it needs
			return err
		case what == cutOff && phase == "set-up" && e.Rank == e.Size-1 && err != nil:
			return nil // it has no NIC to begin with
		case !errors.Is(err, mpi.ErrPeerLost):
			return fmt.Errorf("it was not told: %w", err)
		}
		return nil
	})
}

// happen does it, to the process or the host that we are.
func happen(e *transport.Env, what disaster) error {
	switch what {
	case killed:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case aborts:
		e.Control.Abort(abortCode, "enough")
	case cutOff:
		for i := range e.NICs {
			if err := takeDown(e.NICs[i]); err != nil {
				return err
			}
		}
	case railCut:
		return takeDown(e.NICs[len(e.NICs)-1])
	}
	return nil
}

// takeDown takes down the interface of a NIC.
func takeDown(nic transport.NIC) error {
	name, err := interfaceOf(nic)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // it was for this alone
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(0) // not even up
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("take %s down: %w", name, err)
	}
	return nil
}

func interfaceOf(nic transport.NIC) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.String() == nic.Addr.String() {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface has %v", nic.Addr)
}

// accident is a disaster between processes.
type accident struct {
	way
	what     disaster
	phase    string
	protocol p2p.Protocol
	progress mpi.ProgressMode
}

// accidents are those that are tried: all phases on all providers and in all designs.
// Protocols and modes take turns. No host is without a rail when its NICs are opened.
func accidents() (all []accident) {
	for _, what := range []disaster{killed, cutOff, aborts, railCut} {
		for d, way := range ways() {
			for i, phase := range phases {
				k := d + i
				if what == railCut && phase == "set-up" {
					continue
				}
				all = append(all, accident{way, what, phase, []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[k%3], mpi.ProgressMode(k / 3 % 2)})
			}
		}
	}
	return all
}

// Between processes, too, everybody is told when a rank is killed, cut off or aborts, in
// whatever it was at, and goes on when it loses a rail. Nothing is left of any of them.
func TestDisastersInNamespaces(t *testing.T) {
	t.Parallel()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { nothingIsLeft(t) })
	for i, a := range accidents() {
		if few() && i%47 != 0 || !part.Has(i) {
			continue
		}
		t.Run(fmt.Sprintf("%s/%s/%s-%s-%v-%v", a.what, a.phase, a.provider, a.design, a.protocol, a.progress), func(t *testing.T) {
			t.Parallel() // most wait for one who will never answer
			s := setting{provider: a.provider, design: a.design, protocol: a.protocol, progress: a.progress, ranks: 3, perHost: 1, rails: 1}
			if a.what == railCut {
				s.rails = 2
			}
			r := s.run(victimCommand, string(a.what), a.phase)
			r.KeepGoing = true
			began := time.Now()
			result, err := mpirun.InNamespaces(t.Context(), r)
			want := map[disaster]int{killed: 128 + int(syscall.SIGKILL), aborts: abortCode}[a.what]
			if err != nil || result.Code != want || time.Since(began) > time.Minute {
				t.Errorf("%v, exit code %d, not %d, after %v", err, result.Code, want, time.Since(began))
			}
		})
	}
}

// nothingIsLeft checks that no process of a run is. Memory that ranks share has no name, and
// is gone with them.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	if left := leftOver(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// leftOver are processes of the machine that are ranks of this test's own.
func leftOver(t *testing.T) (found []string) {
	t.Helper()
	entries := must.Get(os.ReadDir("/proc"))(t)
	for _, e := range entries {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/cmdline", e.Name()))
		args := strings.Split(string(text), "\x00")
		if err == nil && slices.Contains(args, victimCommand) {
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%s/exe", e.Name())); err == nil && exe == self() {
				found = append(found, e.Name())
			}
		}
	}
	return found
}
