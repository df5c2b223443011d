package netns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Available says why this process cannot have network namespaces, in one line
// with the cure; nil if it can, by itself or in a user namespace.
func Available() error {
	inside, err := tryInside()
	if err != nil {
		return err
	}
	for _, c := range inside {
		if c.Name == vethName && c.State == No {
			return &UnavailableError{Reason: "veth: " + c.Reason, Cure: c.Cure, Err: errors.ErrUnsupported}
		}
	}
	return nil
}

// Probe tries what this machine can do, in namespaces that are gone when it
// returns.
func Probe() []Capability {
	all := []Capability{
		tryNamespace("user namespaces", "a fabric without being root", unix.CLONE_NEWUSER),
		tryNamespace("network namespaces", "hosts, each with a network of its own", unix.CLONE_NEWNET),
		tryNamespace("PID namespaces", "that nothing survives a run that was killed", unix.CLONE_NEWPID),
	}
	inside, err := tryInside()
	if err != nil {
		// Why was said above; these depend on it.
		for _, t := range trials {
			inside = append(inside, Capability{
				Name: t.name, For: t.use, State: No,
				Reason: "there are no namespaces to try it in", Cure: "see above",
			})
		}
	}
	all = append(all, inside...)
	all = append(all, softRDMA("rdma_rxe", "rxe"), softRDMA("siw", "siw"))
	return append(all, limits()...)
}

// tryNamespace starts a process in a new namespace of one kind, within a user
// namespace if it takes one.
func tryNamespace(name, use string, kind uintptr) Capability {
	c := Capability{Name: name, For: use, State: Yes}
	if self, _ := os.Readlink("/proc/self"); kind == unix.CLONE_NEWUSER && self != strconv.Itoa(os.Getpid()) {
		// Who the new root is must be written to a file of /proc, by process ID.
		c.State, c.Reason = Limited, "it cannot be tried: /proc is that of another PID namespace"
		return c
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{probeName, probeNothing}}
	dieWithParent(cmd)
	cmd.SysProcAttr.Cloneflags = kind
	if !privileged() || kind == unix.CLONE_NEWUSER {
		asRootOfUserNamespace(cmd.SysProcAttr)
	}
	err := startKept(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var why *UnavailableError
	switch {
	case errors.As(err, &why):
		c.State, c.Cure = No, why.Cure
		c.Reason = fmt.Sprintf("%s (%v)", why.Reason, why.Err)
	case err != nil:
		c.State, c.Reason, c.Cure = No, err.Error(), "run as root"
	}
	return c
}

// tryInside starts this program as a probe in an enclosure, and returns what it
// found.
func tryInside() ([]Capability, error) {
	var out, errOut bytes.Buffer
	cmd := &exec.Cmd{}
	enclose(cmd, []string{probeName})
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := startKept(cmd); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("probe in new namespaces: %w: %s", err, strings.TrimSpace(errOut.String()))
	}
	var found []Capability
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return nil, fmt.Errorf("probe in new namespaces: %w", err)
	}
	return found, nil
}

// softRDMA looks for a module of the kernel's RDMA in software. It loads none.
func softRDMA(module, kind string) Capability {
	c := Capability{
		Name: "kernel " + kind, For: "the kernel's RDMA in software as a device under test",
		State: Yes, Cure: "as root: modprobe " + module,
	}
	switch {
	case !loaded(module) && !installed(module):
		c.State, c.Reason = No, "this kernel has no module "+module
		c.Cure = "use a distribution's kernel with its extra modules, or a virtual machine that has one"
	case !loaded(module):
		c.State, c.Reason = Limited, "the module is there, but not loaded"
	case !privileged() || !inFirstUserNamespace():
		c.State, c.Reason, c.Cure = Limited, "the kernel lets real root only make such devices", "run as root"
	default:
		c.Cure = ""
	}
	return c
}

// inFirstUserNamespace reports whether privileges are those of the machine, and not
// of a user namespace: only there every user is himself.
func inFirstUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}

// installed looks a module up in the lists that depmod leaves.
func installed(module string) bool {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return false
	}
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		b, err := os.ReadFile("/lib/modules/" + unix.ByteSliceToString(uts.Release[:]) + "/" + list)
		if err == nil && bytes.Contains(b, []byte("/"+module+".ko")) {
			return true
		}
	}
	return false
}

// limits are sizes of this machine that bound what a fabric can do. They are
// looked up outside: namespaces have no say in them.
func limits() []Capability {
	return []Capability{
		atLeast("receive buffers", "bursts of packets that a busy receiver does not lose", "net/core/rmem_max", 4<<20),
		atLeast("send buffers", "batches of packets in one system call", "net/core/wmem_max", 4<<20),
		descriptors(),
	}
}

func atLeast(name, use, sysctl string, want int) Capability {
	c := Capability{Name: name, For: use, State: Yes}
	dotted := strings.ReplaceAll(sysctl, "/", ".")
	got, err := strconv.Atoi(readSysctl(sysctl))
	switch {
	case err != nil:
		c.State, c.Reason = Limited, dotted+" cannot be read here"
	case got < want:
		c.State, c.Reason = Limited, fmt.Sprintf("%s is %d, and %d is better", dotted, got, want)
		c.Cure = fmt.Sprintf("as root: sysctl -w %s=%d", dotted, want)
	default:
		c.Reason = fmt.Sprintf("%s is %d", dotted, got)
	}
	return c
}

func descriptors() Capability {
	c := Capability{Name: "descriptors", For: "large fabrics: each host takes some ten", State: Yes}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		c.State, c.Reason = Limited, err.Error()
		return c
	}
	c.Reason = fmt.Sprintf("%d files may be open", lim.Max)
	if lim.Max < 4096 {
		c.State, c.Cure = Limited, "ulimit -Hn 65536, in the shell of root or in /etc/security/limits.conf"
	}
	return c
}
