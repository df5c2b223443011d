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

// faultRankCommand makes the test binary a rank that runs all phases. The next arguments are
// the fault of the last rank, and its phase.
const faultRankCommand = "test-fault-rank"

// abortCode is the exit code of all ranks after an abort.
const abortCode = 7

// runFaultRank is a rank of a run with a fault. It returns nil if the fault is reported to it.
func runFaultRank(injected fault, phase string) error {
	p, err := mpihost.Join()
	if err != nil {
		return err
	}
	var o mpi.Options
	if err := json.Unmarshal(p.Job().Options, &o); err != nil {
		return err
	}
	return p.Run(func(e *transport.Env) error {
		var injectErr error
		onPhase := func(reached string) {
			if e.Rank == e.Size-1 && reached == phase {
				injectErr = injectFault(e, injected)
			}
		}
		onPhase("set-up")
		err := mpi.Run(e, o, func(w *mpi.World) error { return runPhases(w, onPhase) })
		switch {
		case injectErr != nil:
			return injectErr
		case injected == railDown || phase == "end" && err == nil: // the rank may need no peer any more
			return err
		case injected == hostDown && phase == "set-up" && e.Rank == e.Size-1 && err != nil:
			return nil // its NICs failed to open
		case !errors.Is(err, mpi.ErrPeerLost):
			return fmt.Errorf("got %w, want %v", err, mpi.ErrPeerLost)
		}
		return nil
	})
}

// injectFault injects a fault into this process or its host.
func injectFault(e *transport.Env, injected fault) error {
	switch injected {
	case rankKilled:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case rankAborts:
		e.Control.Abort(abortCode, "test abort")
	case hostDown:
		for i := range e.NICs {
			if err := takeDown(e.NICs[i]); err != nil {
				return err
			}
		}
	case railDown:
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
	defer unix.Close(fd) //nolint:errcheck // it is used only for the ioctl
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(0) // no flags, not even IFF_UP
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

// faultCase is a fault in a run of processes.
type faultCase struct {
	providerDesign
	fault    fault
	phase    string
	protocol p2p.Protocol
	progress mpi.ProgressMode
}

// faultCases returns all faults in all phases on all providers and designs. Protocols and
// progress modes alternate. No rail is down during set-up, when NICs are opened.
func faultCases() (all []faultCase) {
	for _, injected := range []fault{rankKilled, hostDown, rankAborts, railDown} {
		for d, pd := range providerDesigns() {
			for i, phase := range phases {
				k := d + i
				if injected == railDown && phase == "set-up" {
					continue
				}
				all = append(all, faultCase{pd, injected, phase, []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative}[k%3], mpi.ProgressMode(k / 3 % 2)})
			}
		}
	}
	return all
}

// Ranks that are processes return an error in every phase when one is killed, loses its host's
// links or aborts, and continue when it loses a rail. No process remains.
func TestRanksDetectFaultsInNamespaces(t *testing.T) {
	t.Parallel()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { checkNoProcesses(t) })
	for i, c := range faultCases() {
		if subsetOnly() && i%97 != 0 || !part.Has(i) {
			continue
		}
		t.Run(fmt.Sprintf("%s/%s/%s-%s-%v-%v", c.fault, c.phase, c.provider, c.design, c.protocol, c.progress), func(t *testing.T) {
			t.Parallel() // most wait for a peer that never answers
			s := setting{provider: c.provider, design: c.design, protocol: c.protocol, progress: c.progress, ranks: 3, perHost: 1, rails: 1}
			if c.fault == railDown {
				s.rails = 2
			}
			r := s.run(faultRankCommand, string(c.fault), c.phase)
			r.KeepGoing = true
			began := time.Now()
			result, err := mpirun.InNamespaces(t.Context(), r)
			want := map[fault]int{rankKilled: 128 + int(syscall.SIGKILL), rankAborts: abortCode}[c.fault]
			if err != nil || result.Code != want || time.Since(began) > time.Minute {
				t.Errorf("%v, exit code %d, not %d, after %v", err, result.Code, want, time.Since(began))
			}
		})
	}
}

// checkNoProcesses checks that no rank of this test still runs. The kernel frees their shared
// memory, which has no name.
func checkNoProcesses(t *testing.T) {
	t.Helper()
	var found []string
	entries := must.Get(os.ReadDir("/proc"))(t)
	for _, e := range entries {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/cmdline", e.Name()))
		args := strings.Split(string(text), "\x00")
		if err == nil && slices.Contains(args, faultRankCommand) {
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%s/exe", e.Name())); err == nil && exe == self() {
				found = append(found, e.Name())
			}
		}
	}
	if len(found) > 0 {
		t.Errorf("processes still run: %v", found)
	}
}
