package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A situation is made by this test binary, in namespaces of its own, before it
// becomes fabrictest: nothing of it reaches the machine. That needs user
// namespaces, or root.
const (
	situationMark   = "FABRICTEST_E2E_SITUATION"
	situationFailed = 99
)

// in has a command of the stage take place in a situation, made by steps.
func (s *stage) in(steps []string, args ...string) *exec.Cmd {
	cmd := s.command(args...)
	cmd.Env = append(cmd.Env, situationMark+"="+strings.Join(steps, "\n"))
	cmd.Args = append([]string{"situation"}, cmd.Args...)
	cmd.Args[1] = s.program
	cmd.Path = "/proc/self/exe"
	a := cmd.SysProcAttr
	a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	for _, step := range steps {
		switch step {
		case newContainer:
			a.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
		case holdPort:
			a.Cloneflags |= unix.CLONE_NEWNET
		}
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	return cmd
}

// The steps.
const (
	noUserNamespaces = "no user namespaces"
	noCapabilities   = "capabilities" // and then the numbers of those that are kept
	noNewPrivileges  = "no new privileges"
	tinyDisk         = "disk"      // folder, and its size in bytes
	smallFiles       = "files"     // and their greatest size in bytes
	newContainer     = "container" // with the folder to put its root
	holdPort         = "port"      // RoCE's is in use, on all addresses of a network of its own
)

// enter makes a situation and becomes a program in it. It returns only if that
// fails.
func enter(steps, program []string) error {
	// Capabilities belong to a thread; the one that execs decides.
	runtime.LockOSThread()
	// Nothing that is mounted from here on is seen outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, step := range steps {
		words := strings.Fields(step)
		var err error
		switch {
		case step == noUserNamespaces:
			err = os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
		case step == noNewPrivileges:
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		case step == newContainer:
			err = becomeContainer(filepath.Join(os.Getenv("HOME"), "root"))
		case step == holdPort:
			err = takePort()
		case words[0] == noCapabilities:
			err = keepOnly(words[1:])
		case words[0] == tinyDisk:
			err = unix.Mount("tiny", words[1], "tmpfs", 0, "mode=777,size="+words[2])
		case words[0] == smallFiles:
			err = limitFiles(words[1])
		default:
			err = errors.New("there is no such step")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, situationMark+"=") {
			env = append(env, v)
		}
	}
	return unix.Exec(program[0], program, env)
}

// keepOnly takes all capabilities away for good, but for some.
func keepOnly(words []string) error {
	keep := map[int]bool{}
	for _, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil {
			return err
		}
		keep[n] = true
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if keep[c] {
			continue
		}
		// A kernel older than these headers knows fewer.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil // root's program gets what the bounding set has
}

// takePort takes RoCE's UDP port, for good: the socket is the next program's, too.
func takePort() error {
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return unix.Bind(s, &unix.SockaddrInet6{Port: 4791})
}

func limitFiles(size string) error {
	n, err := strconv.ParseUint(size, 10, 64)
	if err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n})
}

// becomeContainer does what container engines do: a root of its own (here with
// the machine's files in it), a /proc of its own of which parts are read-only or
// hidden, and a /sys that cannot be written to.
func becomeContainer(root string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := unix.Mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, path := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} {
		if err := readOnly(root + path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := readOnly(root + "/sys"); err != nil {
		return fmt.Errorf("/sys: %w", err)
	}
	for _, path := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list"} {
		if err := unix.Mount("/dev/null", root+path, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the old root: %w", err)
	}
	if err := unix.Sethostname([]byte("container")); err != nil {
		return err
	}
	return unix.Chdir(dir)
}

// readOnly has a folder be read-only; what the machine forbids to change about it
// stays as it is.
func readOnly(path string) error {
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	locked := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_RELATIME)
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|locked, "")
}
