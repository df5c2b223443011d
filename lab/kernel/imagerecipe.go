package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	var names []string
	for _, known := range AllSeries() {
		names = append(names, string(known))
	}
	return fmt.Errorf("no kernel %q: there are %s", s, strings.Join(names, " and "))
}

// metapackage returns the package that depends on the current kernel of the series.
func (s Series) metapackage() string {
	if s == Linux61 {
		return "linux-image-amd64"
	}
	return "linux-image-" + string(s) + "-amd64"
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

// hash returns the hash of a value's JSON.
func hash(what any) string {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err) // all callers use types with JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
