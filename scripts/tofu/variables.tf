variable "run" {
  description = "The command, with its first arguments, that runs the words after it as root on the host and passes stdin on: [\"ssh\", \"root@box\"], or [\"sudo\"] for this machine."
  type        = list(string)
  validation {
    condition     = length(var.run) > 0 && alltrue([for word in var.run : word != "" && !strcontains(word, "\n")])
    error_message = "run must have at least one word, none of them empty, and no line break."
  }
}

variable "user" {
  description = "Whose containers toad manages; made if it is not there."
  type        = string
  default     = "toad"
  validation {
    condition     = can(regex("^[a-z_][a-z0-9_-]{0,31}$", var.user))
    error_message = "user must be the name of a user: small letters, digits, _ and -."
  }
}

variable "data" {
  description = "Where toad keeps its records and the kept releases."
  type        = string
  default     = "/data/toad"
  validation {
    condition     = can(regex("^(/[A-Za-z0-9._-]+)+$", var.data))
    error_message = "data must be an absolute path of letters, digits, . _ - and /."
  }
}

variable "listen" {
  description = "Where the API is answered over TCP, too, e.g. 127.0.0.1:8686; null: nowhere."
  type        = string
  default     = null
  validation {
    condition     = var.listen == null || can(regex("^[0-9a-fA-F.:\\[\\]]+:[0-9]+$", var.listen))
    error_message = "listen must be an address and a port, e.g. 127.0.0.1:8686."
  }
}

variable "shape" {
  description = "How the daemon runs: binary, a plain unit, or container, in a rootfs of its own with a Quadlet and four mounts."
  type        = string
  default     = "binary"
  validation {
    condition     = contains(["binary", "container"], var.shape)
    error_message = "shape must be binary or container."
  }
}

variable "binary" {
  description = "The toad to install, a file on this machine; null: what make build has left in bin."
  type        = string
  default     = null
}

variable "quadlets" {
  description = "A folder on this machine whose files become the user's Quadlets. Of what they hold only the sum is in the state."
  type        = string
  default     = null
}

variable "services" {
  description = "The enrollment: what toad may deploy, as README.md describes it."
  type = map(object({
    kind  = optional(string)
    image = optional(string)
    units = optional(list(string))
    ready = optional(object({
      http     = optional(string)
      tcp      = optional(string)
      unix     = optional(string)
      health   = optional(bool)
      notify   = optional(bool)
      status   = optional(number)
      interval = optional(string)
      timeout  = optional(string)
    }))
    probation = optional(object({
      deadline = optional(string)
      stable   = optional(string)
      restarts = optional(number)
      pull     = optional(string)
      keep     = optional(number)
    }))
    switch = optional(object({
      hold   = optional(string)
      beside = optional(list(string))
      listen = optional(string)
      door   = optional(string)
      drain  = optional(string)
    }))
  }))
  default = {}
  validation {
    condition     = alltrue([for name in keys(var.services) : can(regex("^[a-z][a-z0-9-]{0,59}$", name))])
    error_message = "A service is named by small letters, digits and -, beginning with a letter."
  }
}

variable "alerts" {
  description = "Where alerts go. webhook_file is a file on the host, beside the enrollment, that holds the address: the address is a secret, and is not given here."
  type = object({
    webhook_file = optional(string)
    command      = optional(list(string))
  })
  default = {}
}

variable "gateway" {
  description = "The one name by which the web page is asked for through the gateway; null: no gateway. Needs caddy on the host."
  type        = string
  default     = null
  validation {
    condition     = var.gateway == null || can(regex("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$", var.gateway))
    error_message = "gateway must be a host name."
  }
}
