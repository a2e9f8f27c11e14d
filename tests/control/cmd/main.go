// Command cmd runs the control plane and the OpenBao-shaped server of the tests where no test process is near, such as in
// a host's network, and takes a test's wishes on a Unix socket.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"toad/tests/control"
)

func main() {
	addr := flag.String("control", "127.0.0.1:8443", "where the control plane listens")
	bao := flag.String("bao", "127.0.0.1:8200", "where the OpenBao-shaped server listens")
	wishes := flag.String("socket", "", "the Unix socket for wishes; see tests/control/wish.go")
	ca := flag.String("ca", "", "a file that gets the CA's certificate")
	flag.Parse()
	if err := run(*addr, *bao, *wishes, *ca); err != nil {
		log.Fatal(err)
	}
}

func run(addr, bao, wishes, ca string) error {
	w := control.New()
	for address, h := range map[string]http.Handler{addr: w.Control(), bao: w.Bao()} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		defer w.Serve(l, h)()
	}
	if wishes != "" {
		l, err := net.Listen("unix", wishes)
		if err != nil {
			return err
		}
		defer w.ServePlain(l, w.Wishes())()
	}
	if ca != "" {
		if err := os.WriteFile(ca, w.CA(), 0o644); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	<-stop
	return nil
}
