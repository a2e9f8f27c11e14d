# Sets a host up for toad: the user, toad in either shape, its Quadlets, what is enrolled, and the gateway of the page. It
# needs no provider but the built-in one, so it plans without a network. What is secret (tokens, keys, a webhook's address,
# logins of registries) is made on the host and stays there: no variable takes it. Of a Quadlet the state holds the sum only.
terraform {
  required_version = ">= 1.8"
}

locals {
  scripts = abspath("${path.module}/..")
  binary  = abspath(coalesce(var.binary, "${path.module}/../../bin/toad"))
  folder  = var.quadlets == null ? null : abspath(var.quadlets)

  # JSON's strings, numbers and lists are TOML's, too.
  enrollment = join("\n", concat(
    ["# Written by OpenTofu, which writes it anew."],
    flatten([for name, s in var.services : concat(
      ["", "[service.${name}]"],
      [for k, v in { kind = s.kind, image = s.image, units = s.units } : "${k} = ${jsonencode(v)}" if v != null],
      flatten([for table, fields in { ready = s.ready, probation = s.probation, switch = s.switch } : fields == null ? [] : concat(
        ["[service.${name}.${table}]"],
        [for k, v in fields : "${k} = ${jsonencode(v)}" if v != null],
      )]),
    )]),
    length([for v in var.alerts : v if v != null]) == 0 ? [] : ["", "[alerts]"],
    [for k, v in var.alerts : "${k} = ${jsonencode(v)}" if v != null],
  ))
}

resource "terraform_data" "toad" {
  # What the removal needs is kept; it cannot ask a variable.
  input = {
    apply = abspath("${path.module}/apply")
    run   = var.run
    user  = var.user
  }
  triggers_replace = [var.run, var.user, var.data]

  provisioner "local-exec" {
    when        = destroy
    interpreter = ["bash", self.input.apply]
    command     = "remove"
    environment = { RUN = join("\n", self.input.run), TOAD_USER = self.input.user }
  }
}

resource "terraform_data" "installed" {
  triggers_replace = [
    terraform_data.toad.id, var.listen, var.shape, filesha256(local.binary),
    filesha256("${local.scripts}/install"), filesha256("${local.scripts}/toad-as"),
  ]

  provisioner "local-exec" {
    interpreter = ["bash", "${abspath(path.module)}/apply"]
    command     = "install"
    environment = {
      RUN         = join("\n", var.run)
      TOAD_USER   = var.user
      TOAD_DATA   = var.data
      TOAD_LISTEN = coalesce(var.listen, "none")
      TOAD_SHAPE  = var.shape
      TOAD_BINARY = local.binary
    }
  }
}

resource "terraform_data" "quadlet" {
  for_each         = local.folder == null ? [] : fileset(local.folder, "*")
  triggers_replace = [terraform_data.toad.id, filesha256("${local.folder}/${each.key}")]
  depends_on       = [terraform_data.installed]

  provisioner "local-exec" {
    interpreter = ["bash", "${abspath(path.module)}/apply"]
    command     = "quadlet"
    environment = { RUN = join("\n", var.run), TOAD_USER = var.user, NAME = each.key, FILE = "${local.folder}/${each.key}" }
  }
}

resource "terraform_data" "enrollment" {
  triggers_replace = [terraform_data.toad.id, sha256(local.enrollment)]
  depends_on       = [terraform_data.quadlet]

  provisioner "local-exec" {
    interpreter = ["bash", "${abspath(path.module)}/apply"]
    command     = "enrollment"
    environment = { RUN = join("\n", var.run), TOAD_USER = var.user, TEXT = local.enrollment }
  }
}

resource "terraform_data" "gateway" {
  count            = var.gateway == null ? 0 : 1
  triggers_replace = concat([terraform_data.toad.id, var.gateway], [for f in sort(fileset("${local.scripts}/gateway", "*")) : filesha256("${local.scripts}/gateway/${f}")])
  depends_on       = [terraform_data.installed]

  provisioner "local-exec" {
    interpreter = ["bash", "${abspath(path.module)}/apply"]
    command     = "gateway"
    environment = { RUN = join("\n", var.run), TOAD_USER = var.user, NAME = var.gateway }
  }
}
