//go:build e2e

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

// This test binary restricts itself, in new namespaces, before it executes fabrictest: the host
// is not affected. That needs user namespaces, or root.
const (
	restrictVariable = "FABRICTEST_E2E_RESTRICT"
	restrictFailed   = 99
)

// restricted returns a command that runs with restrictions.
func (s *sandbox) restricted(restrictions []string, args ...string) *exec.Cmd {
	cmd := s.command(args...)
	cmd.Env = append(cmd.Env, restrictVariable+"="+strings.Join(restrictions, "\n"))
	cmd.Args = append([]string{"restricted"}, cmd.Args...)
	cmd.Args[1] = s.program
	cmd.Path = "/proc/self/exe"
	a := cmd.SysProcAttr
	a.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
	for _, restriction := range restrictions {
		switch restriction {
		case newContainer:
			a.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
		case portInUse:
			a.Cloneflags |= unix.CLONE_NEWNET
		}
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	return cmd
}

// The restrictions, with arguments after a space.
const (
	noUserNamespaces = "no user namespaces"
	noCapabilities   = "capabilities" // except those with the given numbers
	noNewPrivileges  = "no new privileges"
	tinyDisk         = "disk"  // folder and size in bytes
	smallFiles       = "files" // maximum size in bytes
	newContainer     = "container"
	portInUse        = "port" // RoCE's UDP port is in use, in a new network namespace
)

// execRestricted applies restrictions and executes a program. It returns only after an error.
func execRestricted(restrictions, program []string) error {
	// Capabilities belong to a thread; those of the thread that calls exec count.
	runtime.LockOSThread()
	// Mounts from here on are not visible outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, restriction := range restrictions {
		fields := strings.Fields(restriction)
		var err error
		switch {
		case restriction == noUserNamespaces:
			err = os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
		case restriction == noNewPrivileges:
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		case restriction == newContainer:
			err = becomeContainer(filepath.Join(os.Getenv("HOME"), "root"))
		case restriction == portInUse:
			err = bindRoCEPort()
		case fields[0] == noCapabilities:
			err = dropCapabilities(fields[1:])
		case fields[0] == tinyDisk:
			err = unix.Mount("tiny", fields[1], "tmpfs", 0, "mode=777,size="+fields[2])
		case fields[0] == smallFiles:
			err = limitFiles(fields[1])
		default:
			err = errors.New("unknown restriction")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", restriction, err)
		}
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, restrictVariable+"=") {
			env = append(env, v)
		}
	}
	return unix.Exec(program[0], program, env)
}

// dropCapabilities drops all capabilities from the bounding set but those with the numbers.
func dropCapabilities(numbers []string) error {
	keep := map[int]bool{}
	for _, number := range numbers {
		n, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		keep[n] = true
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if keep[c] {
			continue
		}
		// An older kernel has fewer capabilities.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil // exec as root grants the bounding set
}

// bindRoCEPort binds RoCE's UDP port. The executed program inherits the socket.
func bindRoCEPort() error {
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

// becomeContainer does what container engines do: a new root (here a bind mount of the host's), a
// new /proc of which parts are read-only or hidden, and a read-only /sys.
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

// readOnly remounts a folder read-only, with its locked mount flags unchanged.
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
