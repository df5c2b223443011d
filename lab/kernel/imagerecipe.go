package kernel

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Series is a kernel series.
type Series string

// The kernels of Debian 12: the default, and the later one from the same release.
const (
	Linux61  Series = "6.1"
	Linux612 Series = "6.12"
)

// AllSeries returns all supported series.
func AllSeries() []Series { return []Series{Linux61, Linux612} }

// Check returns an error for an unknown series.
func (s Series) Check() error {
	if slices.Contains(AllSeries(), s) {
		return nil
	}
	return fmt.Errorf("no kernel %q: there are %s and %s", s, Linux61, Linux612)
}

// recipe determines the contents of an image. A change gives a new image.
type recipe struct {
	Version   int // of the code that uses the recipe
	Suite     string
	Packages  []string          // with programs
	Libraries []string          // packages with the libraries of the programs
	Programs  []string          // file names
	DLOpened  []string          // libraries that are opened at run time
	Modules   []string          // loaded at boot
	OnDemand  []string          // loaded on request of the kernel
	Files     map[string]string // by path
}

var currentRecipe = recipe{
	Version:  1,
	Suite:    "bookworm",
	Packages: []string{"busybox-static", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "iproute2", "perftest", "ethtool"},
	Libraries: []string{
		"libc6", "libgcc-s1", "libibverbs1", "librdmacm1", "libibumad3", "libnl-3-200", "libnl-route-3-200", "libmnl0", "libbpf1",
		"libelf1", "libcap2", "libbsd0", "libmd0", "libpci3", "libudev1", "libtirpc3", "libgssapi-krb5-2", "libkrb5-3", "libk5crypto3",
		"libcom-err2", "libkrb5support0", "libkeyutils1", "libssl3", "libselinux1", "libpcre2-8-0", "libdb5.3", "libxtables12", "zlib1g",
	},
	Programs: []string{
		"ip", "rdma", "ethtool", "ibv_devinfo", "ibv_devices",
		"ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong",
		"rping", "ucmatose", "udaddy", "mckey", "rdma_server", "rdma_client", "rdma_xserver", "rdma_xclient", "rstream", "riostream",
		"ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat",
	},
	DLOpened: []string{
		"libgcc_s.so.1",                                   // by pthread_exit
		"libresolv.so.2",                                  // by Go programs that were built with cgo
		"libpthread.so.0", "libdl.so.2", "librdmacm.so.1", // by programs that are put there
	},
	Modules:  []string{"virtio_pci", "virtio_net", "crc32_generic", "crc32c_generic", "ib_uverbs", "ib_umad", "rdma_ucm", "rdma_rxe"},
	OnDemand: []string{"iw_cm", "libcrc32c", "veth", "bridge", "tun", "af_packet", "sch_tbf", "sch_netem"},
	Files: map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
		"/etc/group":         "root:x:0:\nuser:x:1000:\n",
		"/etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	},
}

// providers are the libibverbs drivers of the software devices.
var providers = []string{"rxe", "siw"}

// hash returns the SHA-256 of a value's JSON in hexadecimal.
func hash(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // all callers use types with JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Directories of programs and libraries in unpacked Debian packages.
var (
	programDirs = []string{"bin", "sbin", "usr/bin", "usr/sbin"}
	libraryDirs = []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"}
)

const loader = "ld-linux-x86-64.so.2"

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func findProgram(root, name string) (string, error) { return findIn(root, programDirs, name) }

// findIn returns the path of a file in one of dirs below root, into which packages were unpacked.
// Symbolic links are followed as if root were the root directory.
func findIn(root string, dirs []string, name string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(root, dir, name)
		for range 8 { // links of links
			target, err := os.Readlink(path)
			if err != nil {
				break
			}
			if filepath.IsAbs(target) {
				path = filepath.Join(root, target)
			} else {
				path = filepath.Join(filepath.Dir(path), target)
			}
		}
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("no package has %s: add its new package to the recipe", name)
}

// packPrograms adds the programs of the recipe (the list of an image's contents), the libibverbs
// drivers, and the libraries that both need, from user, the directory of the unpacked packages.
func packPrograms(a *Archive, user string) error {
	a.AddDir("/usr/bin")
	var all []string
	for _, name := range currentRecipe.Programs {
		path, err := findProgram(user, name)
		if err != nil {
			return err
		}
		a.CopyFile("/usr/bin/"+name, path)
		all = append(all, path)
	}
	for _, name := range providers {
		a.CopyFile("/etc/libibverbs.d/"+name+".driver", filepath.Join(user, "etc/libibverbs.d", name+".driver"))
		found, _ := filepath.Glob(filepath.Join(user, "usr/lib/x86_64-linux-gnu/libibverbs", "lib"+name+"-rdmav*.so"))
		if len(found) != 1 {
			return fmt.Errorf("%d drivers of libibverbs for %s, want one", len(found), name)
		}
		a.CopyFile("/usr/lib/x86_64-linux-gnu/libibverbs/"+filepath.Base(found[0]), found[0])
		all = append(all, found[0])
	}
	libraries, err := libraryClosure(user, all, currentRecipe.DLOpened)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(libraries) {
		a.CopyFile("/lib/x86_64-linux-gnu/"+name, libraries[name])
	}
	a.AddLink("/lib64/"+loader, "/lib/x86_64-linux-gnu/"+loader)
	return nil
}

// libraryClosure returns the paths, by name, of the loader, the named libraries, and all shared
// libraries that these and the programs need, transitively. It finds libraries below root.
func libraryClosure(root string, programs, named []string) (map[string]string, error) {
	found := map[string]string{}
	var visit func(path string) error
	add := func(name, by string) error {
		if found[name] != "" {
			return nil
		}
		path, err := findIn(root, libraryDirs, name)
		if err != nil {
			return fmt.Errorf("%s needs %s: %w", by, name, err)
		}
		found[name] = path
		return visit(path)
	}
	visit = func(path string) error {
		f, err := elf.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer f.Close()
		needs, err := f.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, name := range needs {
			if err := add(name, filepath.Base(path)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, path := range programs {
		if err := visit(path); err != nil {
			return nil, err
		}
	}
	for _, name := range append([]string{loader}, named...) {
		if err := add(name, "the recipe"); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// moduleName returns the name of a module from its file name, with underscores.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// MissingError has missing programs or devices, and the command that installs them.
type MissingError struct {
	Missing []string // programs or device files
	Purpose string
	Install string
}

// Error says what is missing on this machine, for which purpose, and how to install it.
func (e *MissingError) Error() string {
	verb := "is"
	if len(e.Missing) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s missing, for %s; to have it: %s", strings.Join(e.Missing, ", "), verb, e.Purpose, e.Install)
}

// packageOf has the Debian packages of programs.
var packageOf = map[string]string{
	"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg", "xz": "xz-utils", "make": "make", "strip": "binutils",
	"qemu-system-x86_64": "qemu-system-x86",
}

// RequirePrograms returns a MissingError for programs that are not installed.
func RequirePrograms(purpose string, programs ...string) error {
	e := &MissingError{Purpose: purpose, Install: "apt-get install --no-install-recommends"}
	var packages []string
	for _, name := range programs {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		e.Missing = append(e.Missing, name)
		pkg := packageOf[name]
		if pkg == "" {
			pkg = name // the package of a compiler has its name
		}
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	if e.Missing == nil {
		return nil
	}
	e.Install += " " + strings.Join(packages, " ") + " (Debian, Ubuntu; as root)"
	return e
}
