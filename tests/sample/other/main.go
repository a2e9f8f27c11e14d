// Command other is another program than sample: the wrong image under a service's name.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "usage: other INPUT OUTPUT")
	os.Exit(2)
}
