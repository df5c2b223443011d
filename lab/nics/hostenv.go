package nics

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/netns/topology"
)

const (
	hostVar = "FABRICTEST_HOST"
	nicsVar = "FABRICTEST_NICS"
)

// ErrNoFabric is returned by FromEnv outside of a fabric.
var ErrNoFabric = errors.New("this program does not run in a host of a fabric: start it with 'fabrictest lab exec'")

// EnvVars returns the environment variables by which a program in a fabric's host finds its NICs,
// except those with _CABLE, which CableVars returns:
//
//	FABRICTEST_HOST        host0
//	FABRICTEST_NICS        rdma0 rdma1, the names of its NICs, which are those of
//	                       its network interfaces
//	FABRICTEST_RDMA0_IPV6  the address of rdma0; also _IPV4
//	FABRICTEST_RDMA0_IPV6_PEERS
//	                       the addresses of all hosts on that rail, in order,
//	                       its own included; also _IPV4_PEERS
//
//	FABRICTEST_RDMA0_CABLE
//	                       the file descriptor of the shared memory that connects
//	                       it to its peers, if it has this instead of an interface
//
// A program that was started as one of several ranks also has FABRICTEST_RANK,
// FABRICTEST_SIZE, and a channel to its launcher: see package launch.
func EnvVars(t *topology.Topology, host topology.Host) []string {
	vars := []string{hostVar + "=" + host.Name}
	names := make([]string, 0, len(host.NICs))
	for _, nic := range host.NICs {
		names = append(names, nic.Name)
		for _, family := range families {
			name, isIPv4 := nicVar(nic.Name, family), family == ipv4Family
			vars = append(vars, name+"="+nic.Addr(isIPv4).String(), name+"_PEERS="+strings.Join(peers(t, nic.Rail, isIPv4), " "))
		}
	}
	return append(vars, nicsVar+"="+strings.Join(names, " "))
}

const ipv4Family = "IPV4"

// families are the address families in variable names.
var families = []string{"IPV6", ipv4Family}

// nicVar returns the name of the variable with the address of a NIC: FABRICTEST_RDMA0_IPV6.
func nicVar(nic, family string) string { return "FABRICTEST_" + strings.ToUpper(nic) + "_" + family }

func cableVar(nic string) string { return "FABRICTEST_" + strings.ToUpper(nic) + "_CABLE" }

// CableVars returns the environment variables with the file descriptors of the shared memory that
// connects a host's NICs, one for each rail. That of rail 0 is firstFD, that of rail 1 the next.
func CableVars(host topology.Host, firstFD int) (vars []string) {
	for _, nic := range host.NICs {
		vars = append(vars, fmt.Sprintf("%s=%d", cableVar(nic.Name), firstFD+nic.Rail))
	}
	return vars
}

// peers returns the NIC addresses of all hosts on a rail, the network of one NIC of each host.
func peers(t *topology.Topology, rail int, ipv4 bool) (all []string) {
	for _, h := range t.Hosts {
		for _, nic := range h.NICs {
			if nic.Rail == rail {
				all = append(all, nic.Addr(ipv4).String())
			}
		}
	}
	return all
}

// Host describes the host on which a program runs.
type Host struct {
	Name string
	NICs []NIC
}

// NIC is a NIC of this host.
type NIC struct {
	Name                 string
	IPv6, IPv4           netip.Addr
	IPv6Peers, IPv4Peers []netip.Addr // of all hosts on its rail, in order
	// Cable is the descriptor of its cable in shared memory; 0 for none.
	Cable int
}

// FromEnv reads the variables of EnvVars from the environment, or returns ErrNoFabric without them.
func FromEnv() (*Host, error) {
	h := &Host{Name: os.Getenv(hostVar)}
	if h.Name == "" {
		return nil, ErrNoFabric
	}
	for _, name := range strings.Fields(os.Getenv(nicsVar)) {
		n := NIC{Name: name}
		if fd := os.Getenv(cableVar(name)); fd != "" {
			var err error
			if n.Cable, err = strconv.Atoi(fd); err != nil || n.Cable <= 2 {
				return nil, fmt.Errorf("%s=%q: want the number of a descriptor", cableVar(name), fd)
			}
		}
		for _, family := range families {
			addrVar := nicVar(name, family)
			addrs, err := parseAddrs(addrVar, os.Getenv(addrVar))
			if err != nil || len(addrs) != 1 {
				return nil, errors.Join(err, fmt.Errorf("%s=%q: want one address", addrVar, os.Getenv(addrVar)))
			}
			peers, err := parseAddrs(addrVar+"_PEERS", os.Getenv(addrVar+"_PEERS"))
			if err != nil {
				return nil, err
			}
			if family == ipv4Family {
				n.IPv4, n.IPv4Peers = addrs[0], peers
			} else {
				n.IPv6, n.IPv6Peers = addrs[0], peers
			}
		}
		h.NICs = append(h.NICs, n)
	}
	if len(h.NICs) == 0 {
		return nil, fmt.Errorf("%s names no NIC", nicsVar)
	}
	return h, nil
}

// parseAddrs parses the value of a variable: addresses separated by spaces.
func parseAddrs(variable, value string) (addrs []netip.Addr, err error) {
	for _, f := range strings.Fields(value) {
		a, err := netip.ParseAddr(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// InheritedCable returns the cable in shared memory that this process has inherited as a descriptor;
// nil for 0, which means none. The file is a duplicate: the cable can be opened again.
func InheritedCable(fd int) *os.File {
	if fd <= 0 {
		return nil
	}
	syscall.CloseOnExec(fd)
	own, err := syscall.Dup(fd)
	if err != nil {
		own = fd // too many descriptors: the cable can be opened once
	}
	syscall.CloseOnExec(own)
	return os.NewFile(uintptr(own), "cable")
}

// Open opens a NIC as a soft-RoCE device over IPv6.
func (n *NIC) Open() (*softroce.Device, error) {
	cfg := softroce.Config{Name: n.Name, Addrs: []netip.Addr{n.IPv6}}
	if cable := InheritedCable(n.Cable); cable != nil {
		return softroce.OnCable(cable, cfg)
	}
	return softroce.OnUDP(udplink.Config{}, cfg)
}
